"""Windows that close are answered at once, and while work is shed a few after each batch."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.standing_queries.answer_scheduler import SAVED_S_MAX, SHARE, Answering
from shedder.engine.standing_queries.standing_query import StandingQuery, StreamFacts
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.window_state.query_state import QueryState
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import arrow_schema, encode

QUERIES = 8
ANSWER_S = 0.02
BATCH_S = 0.04
"""What a batch takes, beside answers."""
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
START_US = int(START.timestamp() * 1e6)


class Timed:
    """A standing query whose answers take a while, by the world's clock."""

    def __init__(self, query: StandingQuery, world: World) -> None:
        self._query = query
        self._world = world

    @property
    def state(self) -> QueryState:
        return self._query.state

    @property
    def stale(self) -> bool:
        return self._query.stale

    @property
    def deferred_windows(self) -> int:
        return self._query.deferred_windows

    @property
    def failed(self) -> str:
        return self._query.failed

    def guard(self, work: Callable[[], None]) -> None:
        self._query.guard(work)
        assert not self._query.failed

    def windows_closed(self, facts: StreamFacts, stretch: int) -> None:
        before = self._query.span
        self._query.windows_closed(facts, stretch)
        if self._query.span != before:
            assert self._query.span is not None
            self._world.s += ANSWER_S
            self._world.answers.append((self.state.name, self._query.span.end_us))

    def refresh(self, facts: StreamFacts) -> None:
        self._query.refresh(facts)
        self._world.s += ANSWER_S
        self._world.refreshed.append(self.state.name)


@dataclass
class World:
    """The queries of an engine's stream, answered by an `Answering` of the test's own.

    s: the time. answers: the queries that were answered, each with its window's end. refreshed: the
    queries that were answered again.
    """

    engine: Engine
    real: Stream
    s: float = 0.0
    answers: list[tuple[str, int | None]] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answering = Answering(lambda: self.s)
        self.id = self.real.id
        self.queries = {name: Timed(query, self) for name, query in self.real.queries.items()}

    def facts(self) -> StreamFacts:
        return self.real.facts()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.answers]

    def close(self, second: int) -> None:
        """Close the windows before this second, and answer none of them."""
        self.real.watermark.raise_to(START_US + second * 1_000_000)
        self.real.close_panes()

    def push(self, second: int) -> None:
        """Push one tuple of this second, which closes the window before it, and answer."""
        moment = START + datetime.timedelta(seconds=second)
        times = pa.array([moment.replace(tzinfo=None)], pa.timestamp("us"))
        schema = arrow_schema(self.engine.schema("s"))
        payload = encode(pa.RecordBatch.from_arrays([times], schema=schema))
        self.engine.append("s", payload, producer="p", epoch=0, sequence=None)
        self.engine.core.machine.settle()


@pytest.fixture
def world(tmp_path):
    with Engine.open(tmp_path / "db", machine=VirtualEnvironment(1, START_US)) as engine:
        engine.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts")
        for number in range(QUERIES):
            engine.register(
                f"q{number}",
                "SELECT COUNT(*) AS n FROM s [RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND]",
            )
        world = World(engine, engine.core.streams["s"])
        world.push(0)
        yield world


def test_without_load_all_who_are_due_are_answered_at_once(world):
    world.close(1)
    world.answering.after(world, 1, incremental=False)
    assert world.names == list(world.queries)


def test_while_work_is_shed_answers_take_their_share_and_everybody_gets_his_turn(world):
    began = world.s
    for batch in range(1, 200):
        world.s += BATCH_S
        before = len(world.answers)
        world.close(batch)
        world.answering.after(world, 1, incremental=True)
        assert len(world.answers) - before <= 1 + SAVED_S_MAX / ANSWER_S
    spent = ANSWER_S * len(world.answers)
    assert spent / (world.s - began - spent) == pytest.approx(SHARE, rel=0.1)
    counts = [world.names.count(name) for name in world.queries]
    assert max(counts) - min(counts) <= 1
    ends = [end for _, end in world.answers]
    assert ends == sorted(ends)  # Each is of the newest window there is.


def test_who_waits_is_answered_once_nothing_waits_to_be_applied(world):
    world.close(1)
    world.answering.after(world, 1, incremental=True)
    assert len(world.answers) == 1
    steps = 0
    while world.answering.go_on([world], 1):
        steps += 1
    assert steps == QUERIES - 1
    assert set(world.names) == set(world.queries)
    assert not world.answering.go_on([], 1)


def test_while_work_is_shed_what_is_stale_is_answered_again_in_its_turn(world):
    """Tuples that come late make all answers stale; once it was all of them at each refresh."""
    world.close(1)
    world.answering.after(world, 1, incremental=False)
    for query in world.real.queries.values():
        query.note_dropped(START_US)
    assert world.answering.refresh([world], incremental=True, idle=False)
    assert not world.refreshed
    world.s += BATCH_S
    world.answering.after(world, 1, incremental=True)
    assert 1 <= len(world.refreshed) <= 1 + SAVED_S_MAX / ANSWER_S
    while world.answering.go_on([world], 1):
        pass
    assert world.refreshed == list(world.queries)
    assert not any(query.stale for query in world.queries.values())
    assert not world.answering.refresh([world], incremental=True, idle=True)
    world.real.queries["q3"].note_dropped(START_US)
    world.answering.refresh([world], incremental=False, idle=False)  # Without load, at once.
    assert world.refreshed[QUERIES:] == ["q3"]
