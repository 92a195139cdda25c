"""Windows that close are answered at once, and while work is shed a few after each batch."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from shedder.engine.answering import SAVED_S_MAX, SHARE, Answering
from shedder.engine.engine import Engine
from shedder.simulation.machine import VirtualMachine
from shedder.streams.batches import arrow_schema, encode

QUERIES = 8
ANSWER_S = 0.02
BATCH_S = 0.04
"""What a batch takes, beside answers."""
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Told(Answering):
    """Answers take a while, by a clock of their own; who was answered, when."""

    def __init__(self):
        self.s = 0.0
        self.answers = []
        super().__init__(lambda: self.s)


@pytest.fixture
def world(tmp_path):
    with Engine.open(
        tmp_path / "db", machine=VirtualMachine(1, int(START.timestamp() * 1e6))
    ) as engine:
        engine.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts")
        for number in range(QUERIES):
            engine.register(
                f"q{number}",
                "SELECT COUNT(*) AS n FROM s [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]",
            )
        told = engine.core.answering = Told()
        for name, published in engine.core.streams["s"].queries.items():

            def tell(news, name=name, publish=published.tell):
                told.s += ANSWER_S
                told.answers.append((name, news.end_us))
                publish(news)

            published.tell = tell
        yield engine, told


def push(engine, second):
    """One tuple of this second, which closes the window before it."""
    moment = START + datetime.timedelta(seconds=second)
    times = pa.array([moment.replace(tzinfo=None)], pa.timestamp("us"))
    schema = arrow_schema(engine.schema("s"))
    payload = encode(pa.RecordBatch.from_arrays([times], schema=schema))
    engine.append("s", payload, producer="p", epoch=0, sequence=None)
    engine.core.machine.settle()


def test_without_load_all_who_are_due_are_answered_at_once(world):
    engine, told = world
    push(engine, 0)
    told.answers.clear()
    push(engine, 1)
    assert [name for name, _ in told.answers] == [f"q{number}" for number in range(QUERIES)]


def test_while_work_is_shed_answers_take_their_share_and_everybody_gets_his_turn(world):
    engine, told = world
    core = engine.core
    core.durable.together = True
    stream = core.streams["s"]
    push(engine, 0)
    began = told.s
    for batch in range(1, 200):
        told.s += BATCH_S
        before = len(told.answers)
        stream.watermark.raise_to(int(START.timestamp() * 1e6) + batch * 1_000_000)
        for published in stream.queries.values():
            published.standing.close(stream.watermark_us)
        told.after(stream, 1, spreads=True)
        assert len(told.answers) - before <= 1 + SAVED_S_MAX / ANSWER_S
    spent = ANSWER_S * len(told.answers)
    assert spent / (told.s - began - spent) == pytest.approx(SHARE, rel=0.1)
    counts = [[name for name, _ in told.answers].count(f"q{at}") for at in range(QUERIES)]
    assert max(counts) - min(counts) <= 1
    ends = [end for _, end in told.answers]
    assert ends == sorted(ends)  # Each is of the newest window there is.


def test_who_waits_is_answered_once_nothing_waits_to_be_applied(world):
    engine, told = world
    core = engine.core
    stream = core.streams["s"]
    push(engine, 0)
    told.answers.clear()
    stream.watermark.raise_to(int(START.timestamp() * 1e6) + 1_000_000)
    for published in stream.queries.values():
        published.standing.close(stream.watermark_us)
    told._saved_s = 0.0
    told.after(stream, 1, spreads=True)
    assert len(told.answers) == 1
    steps = 0
    while told.go_on([stream], 1):
        steps += 1
    assert steps == QUERIES - 1
    assert {name for name, _ in told.answers} == set(stream.queries)
    assert not told.go_on([], 1)


def test_while_work_is_shed_what_is_stale_is_answered_again_in_its_turn(world):
    """Tuples that come late make all answers stale; once it was all of them at each refresh."""
    engine, told = world
    core, stream = engine.core, engine.core.streams["s"]
    push(engine, 0)
    push(engine, 1)
    core.durable.together = True
    told.answers.clear()
    refreshed = []
    for name, published in stream.queries.items():
        published.outdated = True

        def refresh(stream, name=name, refresh=published.refresh):
            told.s += ANSWER_S
            refreshed.append(name)
            refresh(stream)

        published.refresh = refresh
    assert told.refresh([stream], spreads=True, idle=False)
    assert not refreshed
    told.s += BATCH_S
    told.after(stream, 1, spreads=True)
    assert 1 <= len(refreshed) <= 1 + SAVED_S_MAX / ANSWER_S
    while told.go_on([stream], 1):
        pass
    assert refreshed == list(stream.queries)
    assert not any(published.stale for published in stream.queries.values())
    assert not told.refresh([stream], spreads=True, idle=True)
    stream.queries["q3"].outdated = True
    told.refresh([stream], spreads=False, idle=False)  # Without load, at once.
    assert refreshed[QUERIES:] == ["q3"]
