"""Queries of the same aggregates over several windows share panes and answer as if not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.runtime.environment import Environment
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan, plan
from shedder.engine.window_state.query_state import QueryState
from shedder.queries.answers.database_api import Receipt
from tests.engine.allocation_world import MIB, bound
from tests.engine.memory_grown import frames
from tests.scale import scaled
from tests.seeds import seed

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND
STREAM = (
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts "
    "LATENESS INTERVAL '2' SECOND"
)
SELECT = (
    "SELECT {}COUNT(*) AS n, SUM(k) AS total, MIN(k) AS low, MAX(k) AS high, "
    "COUNT(DISTINCT k) AS keys, MEDIAN(v) AS middle FROM s {} WHERE k > 3 {}"
)
WINDOWS = {  # Panes of 1, 5, 1 and 60 seconds.
    "minute": "[RANGE 1 MINUTE SLIDE 1 SECOND]",
    "five": "[RANGE 5 MINUTES SLIDE 5 SECONDS]",
    "two": "[RANGE 2 MINUTES SLIDE 1 SECOND]",
    "hour": "[RANGE 20 MINUTES SLIDE 1 MINUTE]",
}


def text(window: str, grouped: bool) -> str:
    group = ("k % 5 AS g, ", "GROUP BY k % 5") if grouped else ("", "")
    return SELECT.format(group[0], WINDOWS[window], group[1])


def now_us() -> int:
    return NOW_US + 10**6 * SECOND


def open_at(directory: Path, machine: Environment | None = None) -> Engine:
    return Engine.open(
        directory,
        machine=machine or Environment(now_us),
        checkpoint_seconds=1e6,
        allocation_seconds=1e6,
    )


class Breakable(Environment):
    """A machine on which one query may fail while it reads tuples.

    query: name of the query. breaks: whether the query fails.
    """

    def __init__(self, query: str) -> None:
        super().__init__(now_us)
        self.query = query
        self.breaks = False

    def cpu_timer(self, query: str, plan: SynopsisPlan, *, grouped: bool) -> CpuTimer:
        if query != self.query:
            return super().cpu_timer(query, plan, grouped=grouped)
        return BreakableWatch(self, len(plan.parts))


class BreakableWatch(CpuTimer):
    def __init__(self, machine: Breakable, parts: int) -> None:
        super().__init__(parts, machine.monotonic_ns, machine.cpu_ns)
        self._machine = machine

    def lap(self, part: int, tuples: int, level: int = 0) -> None:
        if self._machine.breaks:
            raise ZeroDivisionError
        super().lap(part, tuples, level)


def batch(rng: np.random.Generator, newest: float) -> pa.Table:
    """Some tuples are late for panes of a second and not for those of a minute, some for all."""
    rows = int(rng.integers(1, 60))
    back = rng.choice([1.0, 5.0, 50.0, 400.0], rows, p=[0.8, 0.1, 0.08, 0.02])
    seconds = newest - back * rng.random(rows)
    return pa.table(
        {
            "ts": pa.array(NOW_US + (seconds * SECOND).astype(np.int64), pa.timestamp("us")),
            "k": pa.array(rng.integers(0, 300, rows)),
            "v": pa.array(rng.lognormal(2, 1, rows)),
        }
    )


def of(db: Engine, name: str) -> QueryState:
    return db.core.standing_query(name)[1].state


def fed(db: Engine) -> dict[str, str]:
    """Return the query that reads for each query."""
    names = [name for name in WINDOWS if name in db.core.stream("s").queries]
    providers = {name: of(db, name).provider for name in names}
    return {name: each.name for name, each in providers.items() if each is not None}


class Alone:
    """One engine for each query: nothing is shared."""

    def __init__(self, directory: Path, grouped: bool) -> None:
        self.engines = {}
        for name in WINDOWS:
            self.engines[name] = open_at(directory / name)
            self.engines[name].execute(STREAM)
        self.grouped = grouped

    def register(self, name: str) -> None:
        self.engines[name].register(name, text(name, self.grouped))

    def push(self, table: pa.Table) -> None:
        for engine in self.engines.values():
            engine.push("s", table)

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()

    def check(self, db: Engine, after: Receipt | None) -> None:
        """Compare answers."""
        for name in db.core.stream("s").queries:
            mine, theirs = (e.query(name).answer(after) for e in (db, self.engines[name]))
            assert (mine.start_us, mine.end_us) == (theirs.start_us, theirs.end_us)
            assert mine.late == theirs.late, name
            key = (lambda row: row["g"]) if self.grouped else None
            rows = [sorted(answer.rows(), key=key) for answer in (mine, theirs)]
            assert rows[0] == rows[1], name

    def check_ledgers(self, db: Engine) -> None:
        """Compare the numbers of tuples since registration, which only grow."""
        for our in db.ledger("s").queries:
            (alone,) = self.engines[our.query].ledger("s").queries
            assert (our.read, our.late) == (alone.read, alone.late), our.query


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("turn", range(scaled(1, 2)))
def test_shared_answers_are_those_of_queries_that_stand_alone(
    tmp_path: Path, turn: int, grouped: bool
) -> None:
    """The finest panes first, or the coarsest; a change has one order with groups, one without."""
    order = (turn + grouped + seed("order of windows")) % 2
    rng = np.random.default_rng(order)
    alone = Alone(tmp_path, grouped)
    db = open_at(tmp_path / "shared")
    db.execute(STREAM)
    names = list(WINDOWS)[:: -1 if order else 1]
    newest, receipt = 0.0, None

    def push(count: int) -> None:
        nonlocal newest, receipt
        for _ in range(count):
            newest += float(rng.choice([0.5, 3.0, 20.0, 300.0], p=[0.5, 0.3, 0.17, 0.03]))
            table = batch(rng, newest)
            alone.push(table)
            receipt = db.push("s", table)
            alone.check(db, receipt)
        alone.check_ledgers(db)

    few = scaled(6, 10)
    push(3)
    for name in names:
        db.register(name, text(name, grouped))
        alone.register(name)
        push(scaled(5, 8))
    assert fed(db).keys() == set(WINDOWS) - {"minute"} or fed(db).keys() == set(WINDOWS) - {"two"}
    push(scaled(12, 20))
    before = fed(db)
    db.close()
    db = open_at(tmp_path / "shared")
    assert fed(db) == before
    alone.check(db, receipt)
    alone.check_ledgers(db)
    push(few)
    db.checkpoints.now()
    push(scaled(3, 5))
    db.core.store.close()  # As killed: the log since the checkpoint is applied again.
    db = open_at(tmp_path / "shared")
    assert fed(db) == before
    alone.check(db, receipt)
    alone.check_ledgers(db)
    push(few)
    provider = before["five"]
    db.drop_query(provider)  # The others read by themselves, or for each other.
    assert len(fed(db)) == 2
    alone.check(db, receipt)
    alone.check_ledgers(db)
    push(few)
    db.core.store.close()
    db = open_at(tmp_path / "shared")
    assert len(fed(db)) == 2
    alone.check(db, receipt)
    alone.check_ledgers(db)
    push(few)
    db.drop_query("hour")
    push(3)
    db.close()
    alone.close()


@pytest.mark.slow
def test_tuples_are_read_once_for_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        for name in WINDOWS:
            db.register(name, text(name, False))
        assert set(fed(db).values()) == {"minute"}
        for newest in range(200, 300):
            rows = batch(rng, newest)
            recent = rows["ts"].cast(pa.int64()).to_numpy() >= NOW_US + (newest - 1) * SECOND
            receipt = db.push("s", rows.filter(pa.array(recent)))
        db.query("minute").answer(after=receipt)
        for name in ("two", "five"):
            open_panes = [of(db, name).panes[pane] for pane in of(db, name).panes.open_numbers()]
            assert sum(int(pane.counts.sum()) for pane in open_panes) == 0
        minute, two = of(db, "minute").panes, of(db, "two").panes
        shared = [pane for pane, held in minute.items() if two.get(pane) is held]
        assert len(shared) > 30  # Not copies.
        assert "its panes are read by" in db.query("minute").explain()
        assert "reads the panes of minute" in db.query("two").explain()


@pytest.mark.slow
def test_what_is_not_alike_is_not_shared(tmp_path: Path) -> None:
    alike = (
        "SELECT COUNT(*) AS n, SUM(k) AS total FROM s [RANGE 1 MINUTE SLIDE 1 SECOND] WHERE k > 3"
    )
    others = (
        alike.replace("k > 3", "k > 4"),
        alike.replace("SUM(k)", "SUM(v)"),
        alike.replace(", SUM(k) AS total", ""),
        alike.replace("[RANGE 1 MINUTE SLIDE 1 SECOND]", "[RANGE UNBOUNDED]"),
        alike.replace("SLIDE 1 SECOND", "SLIDE 1500 MILLISECONDS"),
        alike.replace("WHERE k > 3", "WHERE k > 3 GROUP BY k % 2"),
    )
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        db.register("alike", alike.replace("SLIDE 1 SECOND", "SLIDE 2 SECONDS"))
        for at, other in enumerate(others):
            db.register(f"other{at}", other)
            assert of(db, f"other{at}").feed is None, other
            assert not of(db, "alike").consumers, other
        db.register("same", alike)
        assert [each.name for each in of(db, "same").consumers] == ["alike"]


@pytest.mark.slow
def test_levels_that_differ_end_sharing_and_equal_ones_begin_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    certain = " CONFIDENCE 99.99999 PERCENT"
    with open_at(tmp_path / "data") as db:
        db.execute(STREAM)
        for name in ("minute", "two"):
            db.register(name, text(name, False) + certain)
        sent = []
        for step, newest in enumerate(range(100, 340, 4)):
            if step == 20:
                db.thinning.set_thinning("minute", 1)
                assert not fed(db)
            if step == 40:
                db.thinning.set_thinning("two", 1)
                assert fed(db) == {"two": "minute"}
            sent.append(batch(rng, newest))
            receipt = db.push("s", sent[-1])
            for name in ("minute", "two"):
                answer = db.query(name).answer(after=receipt)
                times, keys = (
                    pa.concat_tables(sent)[column].cast(pa.int64()).to_numpy()
                    for column in ("ts", "k")
                )
                inside = (times >= answer.start_us) & (times < answer.end_us) & (keys > 3)
                row = answer.rows()[0]
                assert row["n_low"] <= inside.sum() <= row["n_high"]
                assert row["total_low"] <= keys[inside].sum() <= row["total_high"]
        ledger = {each.query: each for each in db.ledger("s").queries}
        assert ledger["minute"].thinned > 0
        for each in ledger.values():
            assert each.read + each.thinned + each.late == sum(table.num_rows for table in sent)


@pytest.mark.slow
def test_a_query_whose_provider_fails_fails_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    machine = Breakable("minute")
    with open_at(tmp_path / "data", machine) as db:
        db.execute(STREAM)
        for name in ("minute", "two"):
            db.register(name, text(name, False))
        assert fed(db) == {"two": "minute"}
        db.push("s", batch(rng, 100))
        db.query("minute").answer()
        machine.breaks = True
        receipt = db.push("s", batch(rng, 110))
        for name in ("minute", "two"):
            with pytest.raises(Exception, match="drop it and register it again"):
                db.query(name).answer(after=receipt)


def counting(name: str, range_s: int, slide_s: int, *, cap_bytes: int = 64 * MIB) -> QueryState:
    """Return a query that counts rows of each k, with a cap on the groups."""
    window = f"[RANGE {range_s} SECONDS SLIDE {slide_s} SECONDS]"
    query = bound(f"SELECT k AS g, COUNT(*) AS n FROM s {window} GROUP BY g")
    return QueryState(name, query, plan(query, {}), part_bytes_max=cap_bytes)


def rows_in(query: QueryState) -> dict[int, int]:
    return {number: int(pane.counts.sum()) for number, pane in query.panes.items()}


@pytest.mark.parametrize("consumer_closes_first", [True, False])
def test_a_consumer_that_has_room_where_its_provider_has_none_counts_each_row_once(
    consumer_closes_first: bool,
) -> None:
    rows = 3_000
    provider = counting("provider", 4, 1, cap_bytes=100_000)
    consumer = counting("consumer", 8, 2)
    consumer.take_from(provider, (0, 0))
    for second, frame in enumerate(frames(4, rows)):
        for query in (consumer, provider):
            query.apply(frame, watermark_us=second * SECOND, limit_us=None)
        assert provider.keys is not None
        assert provider.keys.frozen
        if second % 2:  # Panes of the consumer end.
            order = (consumer, provider) if consumer_closes_first else (provider, consumer)
            for query in order:
                query.close((second + 1) * SECOND)
    assert rows_in(consumer) == {0: 2 * rows, 1: 2 * rows}
    assert rows_in(provider) == dict.fromkeys(range(4), rows)


def test_a_consumer_that_failed_keeps_no_panes_of_its_provider() -> None:
    provider, consumer = counting("provider", 4, 1), counting("consumer", 8, 2)
    consumer.take_from(provider, (0, 0))
    for second, frame in enumerate(frames(12, 10)):
        provider.apply(frame, watermark_us=second * SECOND, limit_us=None)
        if second == 3:
            consumer.fail()
        provider.close((second + 1) * SECOND)
        provider.drop_before(second - 3)
    assert rows_in(provider) == dict.fromkeys(range(8, 12), 10)
