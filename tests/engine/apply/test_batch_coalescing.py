"""Batches that wait are read as one while work is shed, and nothing comes of it but less work."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shedder.overload.load_meter import ROWS_MAX, Meter
from shedder.streams.batches import encode
from tests.engine.flooded import ROWS, SECOND, START, Flooded, Priced, strides

WINDOWED = "SELECT g, COUNT(*) AS n, SUM(x) AS s, MAX(x) AS m FROM s {} GROUP BY g"
WINDOWS = {
    "short": "[RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]",
    "long": "[RANGE INTERVAL '3' SECOND SLIDE INTERVAL '1' SECOND]",
}
# Of each batch: where its event times begin, how far they reach, both in seconds, and its rows.
FAR = st.tuples(st.floats(0, 12), st.floats(0, 3), st.integers(1, 30))
NEAR = st.tuples(st.floats(5, 7.5), st.floats(0, 1), st.integers(1, 30))
BATCHES = st.lists(FAR, min_size=2, max_size=12) | st.lists(NEAR, min_size=2, max_size=12)


class RunMeter(Meter):
    """A meter that notes the tuples of each run of batches that are applied as one."""

    def __init__(self, clock_ns, cpu_ns):
        super().__init__(clock_ns, cpu_ns)
        self.runs = []

    def begin(self, tuples):
        self.runs.append(tuples)
        super().begin(tuples)


class Metered(Priced):
    def meter(self):
        return RunMeter(self.monotonic_ns, self.cpu_ns)


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
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(batches=BATCHES, seed=st.integers(0, 1_000))
def test_reading_together_is_reading_one_by_one(tmp_path_factory, batches, seed):
    """Also of batches that are late, partly or wholly, and of those that close several windows."""
    directory = tmp_path_factory.mktemp("db")
    alone, together = (outcome(directory / str(how), batches, seed, how) for how in (False, True))
    assert alone == together


@pytest.mark.parametrize(("begins_s", "most"), [(6.3, 1), (5.3, 2)])
def test_batches_of_clients_who_waited_are_read_as_one_while_no_pane_of_theirs_has_closed(
    tmp_path, begins_s, most
):
    """Their tuples are behind the watermark, at 6.9; the pane from 6 to 7 is open."""
    world = Flooded(tmp_path / "db", machine=Metered(), overload="off")
    for name, window in WINDOWS.items():
        world.engine.register(name, WINDOWED.format(window))
    send(world, [(5.0, 0.0, 100)], 1)
    world.machine.settle()
    meter = world.engine.core.meter
    meter.take()
    meter.runs.clear()
    world.engine.core.ease(coalesces=True)
    send(world, [(7.9, 0.0, 5), (begins_s, 0.1, 5)] * 5, 2)
    world.machine.settle()
    assert len(meter.runs) == most
    assert sum(meter.runs) == 50
    stream = world.engine.core.streams["s"]
    lost = 0 if most == 1 else 25
    assert stream.late == 25
    assert [stream.queries[name].state.late for name in WINDOWS] == [lost, lost]
    world.engine.close()


def outcome(directory, batches, seed, together):
    """What is known after these batches have waited: ledger, late ones, watermark, answers."""
    world = Flooded(directory, overload="off")
    core, answers = world.engine.core, {name: [] for name in WINDOWS}
    for name, window in WINDOWS.items():
        world.engine.register(name, WINDOWED.format(window))
        core.standing_query(name)[1].listeners.add(answers[name].append)
    send(world, [(0.0, 0.0, 5)], seed, ends=True)  # Late ones may have any value from here on.
    world.machine.settle()
    core.meter.take()  # From now on it is known how long a tuple takes.
    core.ease(coalesces=together)
    send(world, batches, seed)
    assert len(strides(world)) <= len(batches)
    stream = core.streams["s"]
    slides = {
        name: [(str(each.window), sorted(each.rows(), key=itemgetter("g"))) for each in every]
        for name, every in answers.items()
    }
    found = asdict(world.engine.ledger("s")), stream.late, stream.watermark_us, slides
    world.engine.close()
    return found


def send(world, batches, seed, *, ends=False):
    """Each is made durable by itself, and waits; values are whole, so that sums are exact.

    ends: the least and the greatest that there are, are among them.
    """
    rng = np.random.default_rng(seed)
    for begins_s, reaches_s, rows in batches:
        times = START + SECOND * (begins_s + reaches_s * rng.random(rows))
        values = rng.integers(0, 1_000, rows).astype(np.float64)
        values[:2] = (0.0, 999.0) if ends else values[:2]
        table = pa.record_batch(
            {
                "ts": pa.array(times.astype(np.int64), pa.timestamp("us")),
                "k": rng.integers(0, 9, rows),
                "g": rng.choice(list("ab"), rows),
                "x": values,
            }
        )
        world.engine.append("s", encode(table), producer="p", epoch=0, sequence=None)
        world.machine.log.commit(world.machine.log.gather())
