"""Batches that wait are read as one while work is shed, and nothing comes of it but less work."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shedder.overload.meter import ROWS_MAX
from shedder.streams.batches import encode
from tests.engine.flooded import ROWS, SECOND, START, Flooded

WINDOWED = "SELECT g, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM s {} GROUP BY g"
WINDOWS = {
    "short": "[RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]",
    "long": "[RANGE INTERVAL '3' SECOND SLIDE INTERVAL '1' SECOND]",
}
# Of each batch: where its event times begin, how far they reach, both in seconds, and its rows.
BATCHES = st.lists(
    st.tuples(st.floats(0, 12), st.floats(0, 3), st.integers(1, 30)), min_size=2, max_size=12
)


def strides(world):
    """How many tuples of the stream each step of the apply thread applies, until all are."""
    stream, found = world.engine.core.streams["s"], []
    while world.machine.applier.waiting is not None:
        before = stream.applied
        world.machine.applier.step()
        found.append(stream.applied - before)
    return [stride for stride in found if stride]


@pytest.mark.slow
def test_what_waits_is_read_in_fewer_strides_only_while_work_is_shed(tmp_path):
    world = Flooded(tmp_path / "db")
    for _ in range(10):
        world.send()
    assert strides(world) == [ROWS] * 10
    world.flood()
    assert world.engine.overload.state.overloaded
    world.machine.settle()
    for _ in range(40):
        world.send()
    found = strides(world)
    assert sum(found) == 40 * ROWS
    assert len(found) <= 20
    assert max(found) <= ROWS_MAX
    world.engine.close()


@pytest.mark.slow
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(batches=BATCHES, seed=st.integers(0, 1_000))
def test_reading_together_is_reading_one_by_one(tmp_path_factory, batches, seed):
    """Also of batches that are late, partly or wholly, and of those that close several windows."""
    directory = tmp_path_factory.mktemp("db")
    alone, together = (told(directory / str(how), batches, seed, how) for how in (False, True))
    assert alone == together


def told(directory, batches, seed, together):
    """What is known after these batches have waited: ledger, late ones, watermark, answers."""
    world = Flooded(directory, overload="off")
    core, answers = world.engine.core, {name: [] for name in WINDOWS}
    for name, window in WINDOWS.items():
        world.engine.register(name, WINDOWED.format(window))
        core.published(name)[1].listeners.add(answers[name].append)
    send(world, [(0.0, 0.0, 5)], seed)
    world.machine.settle()
    core.meter.take()  # From now on it is known how long a tuple takes.
    core.durable.together = together
    send(world, batches, seed)
    assert len(strides(world)) <= len(batches)
    stream = core.streams["s"]
    slides = {name: [(str(a.window), a.rows()) for a in every] for name, every in answers.items()}
    found = asdict(world.engine.ledger("s")), stream.late, stream.watermark_us, slides
    world.engine.close()
    return found


def send(world, batches, seed):
    """Each is made durable by itself, and waits; values are whole, so that sums are exact."""
    rng = np.random.default_rng(seed)
    for begins_s, reaches_s, rows in batches:
        times = START + SECOND * (begins_s + reaches_s * rng.random(rows))
        table = pa.record_batch(
            {
                "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
                "k": rng.integers(0, 9, rows),
                "g": rng.choice(list("ab"), rows),
                "x": rng.integers(0, 1_000, rows).astype(np.float64),
            }
        )
        world.engine.append("s", encode(table), producer="p", epoch=0, sequence=None)
        world.machine.log.commit(world.machine.log.gather())
