"""A hypothesis machine drives an engine through everything, beside the plainest truth there is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shedder.engine.administration.insert import CHUNK_ROWS
from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_sequences import CONTENTS_MAX
from shedder.errors import BadBatch, SequenceGap, SequenceReused, StaleEpoch, StreamInUse
from shedder.queries.answers.answer import Answer
from tests.engine.oracle import (
    FUTURE_US,
    LATENESS_US,
    SECOND,
    START_US,
    YEAR_1_US,
    OracleQuery,
    OracleStream,
)
from tests.engine.resized import resize
from tests.engine.supervised import Supervised
from tests.scale import scaled
from tests.seeds import seed

YEAR_9999_US = 253_402_300_799 * SECOND

WINDOWS = {
    "sliding": "[RANGE INTERVAL '30' SECOND SLIDE INTERVAL '10' SECOND]",
    "uneven": "[RANGE INTERVAL '25' SECOND SLIDE INTERVAL '10' SECOND]",
    "tumbling": "[RANGE INTERVAL '20' SECOND SLIDE INTERVAL '20' SECOND]",
    "hopping": "[RANGE INTERVAL '5' SECOND SLIDE INTERVAL '20' SECOND]",
    "collapsed": "[RANGE INTERVAL '1' MINUTE SLIDE INTERVAL '5' SECOND COLLAPSE BY 3 AFTER 2]",
    "landmark": "[FROM TIMESTAMP '2023-11-14 22:13:40']",
    "snapshot": "[FROM TIMESTAMP '2023-11-14 22:13:40' TO TIMESTAMP '2023-11-14 22:14:20']",
    "unbounded": "[RANGE UNBOUNDED]",
}
GROUPS = ("", "g", "b, g", "k % 3", "x")
WHERES = ("", "x > 2", "g IN ('a', 'b') OR k IS NULL")
# Every run checks many new intervals, and none of them may ever miss: hence the confidence.
TARGETS = (
    "WITHIN 5 PERCENT CONFIDENCE 99.99999999 PERCENT ELSE WIDEN",
    "WITHIN 5 PERCENT CONFIDENCE 99.99999999 PERCENT ELSE OMIT",
    "WITHIN 0.05 RANK CONFIDENCE 99.99999999 PERCENT",
)
CERTAIN = "WITHIN 5 PERCENT CONFIDENCE 99.99999999 PERCENT ELSE WIDEN"
SMALL_INTS = st.integers(-3, 12)
INTS = st.one_of(st.none(), SMALL_INTS, SMALL_INTS, st.integers(-(2**63), 2**63 - 1))
FLOATS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 7.0, float("nan")]),
    st.floats(-1e6, 1e6),
    st.sampled_from([float("inf"), float("-inf")]),
)
TEXTS = st.sampled_from([None, "", "a", "b", "c", "Straße", "\U0001f600", "\x00", "z" * 40])
VALUES = st.tuples(INTS, TEXTS, FLOATS, st.sampled_from([None, True, False]))

NEAR = st.integers(-1_500_000, 15 * SECOND)
DISORDERED = st.integers(-6 * SECOND, 12 * SECOND)
LATE = st.integers(-300 * SECOND, -3 * SECOND)
FAR = st.integers(FUTURE_US - 2, 1_000 * FUTURE_US)
OFFSETS = st.one_of(
    st.lists(NEAR, min_size=1, max_size=25).map(sorted),
    st.lists(NEAR, min_size=1, max_size=25).map(sorted),
    st.lists(DISORDERED, min_size=1, max_size=12),
    st.lists(st.one_of(LATE, NEAR), min_size=1, max_size=8),
    st.lists(st.one_of(FAR, NEAR, LATE), min_size=1, max_size=6),
    st.just([]),
)
SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us")),
        pa.field("k", pa.int64()),
        pa.field("g", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("b", pa.bool_()),
    ]
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[]] * 5
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


class EngineMachine(RuleBasedStateMachine):
    """Everything a user can do to one engine, in any order."""

    engine: Engine
    machine: Supervised
    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="shedder-machine-"))
        self.lives = 0
        self.inserts = 0
        self.clock_us = START_US
        self.streams: dict[str, OracleStream] = {}
        self.queries: dict[str, OracleQuery] = {}

    def open(self, directory: Path) -> None:
        self.directory = directory
        self.machine = Supervised(lambda: self.clock_us)
        self.engine = Engine.open(
            directory,
            machine=self.machine,
            sample_rows=64,
            run_rows=40,
            checkpoint_seconds=1e6,
            log_segment_bytes=64 << 10,
            future_us_max=FUTURE_US,
        )

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        shutil.rmtree(self.root, ignore_errors=True)

    @initialize()
    def begin(self) -> None:
        self.open(self.root / "0")
        self.create_stream("s")

    # --- streams and queries ---

    @rule(name=st.sampled_from(["s", "t"]))
    def create_stream(self, name: str) -> None:
        self.engine.execute(
            f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE, b BOOLEAN) "
            f"TIMESTAMP BY ts LATENESS INTERVAL '{LATENESS_US // SECOND}' SECOND"
        )
        self.streams.setdefault(name, OracleStream())

    @precondition(lambda self: "t" in self.streams)
    @rule()
    def drop_stream(self) -> None:
        if any(query.stream == "t" for query in self.queries.values()):
            with pytest.raises(StreamInUse):
                self.engine.execute("DROP STREAM t")
        else:
            self.engine.execute("DROP STREAM t")
            del self.streams["t"]

    @precondition(lambda self: self.streams)
    @rule(
        name=st.sampled_from(["q0", "q1", "q2"]),
        stream=st.sampled_from(["s", "s", "s", "t"]),
        window=st.sampled_from(list(WINDOWS)),
        groups=st.sampled_from(GROUPS),
        where=st.sampled_from(WHERES),
        goal=st.sampled_from(TARGETS),
        thinnable=st.booleans(),
    )
    def register(
        self,
        name: str,
        stream: str,
        window: str,
        groups: str,
        where: str,
        goal: str,
        thinnable: bool,
    ) -> None:
        if stream not in self.streams or name in self.queries:
            return
        query = OracleQuery(
            self.streams[stream],
            stream,
            window,
            groups,
            where,
            self.clock_us,
            thinnable=thinnable,
        )
        target = CERTAIN if thinnable else goal
        self.engine.register(name, query.text(WINDOWS[window], target))
        self.queries[name] = query

    @precondition(lambda self: any(query.thinnable for query in self.queries.values()))
    @rule(share=st.sampled_from(["1/2", "1/2", "1/8", "1"]), data=st.data())
    def thin(self, share: str, data: st.DataObject) -> None:
        names = sorted(name for name, query in self.queries.items() if query.thinnable)
        name = data.draw(st.sampled_from(names))
        self.engine.execute(f"ALTER QUERY {name} SET THINNING {share}")
        self.queries[name].was_thinned = True

    @precondition(lambda self: self.queries)
    @rule(scale=st.sampled_from([-3, -1, 1, 2]), data=st.data())
    def resize(self, scale: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queries)))
        total = self.queries[name].scale + scale
        if -4 <= total <= 2:
            self.queries[name].scale = total
            resize(self.engine, name, scale)

    @precondition(lambda self: self.queries)
    @rule(data=st.data())
    def drop_query(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queries)))
        self.engine.execute(f"DROP QUERY {name}")
        del self.queries[name]

    # --- tuples in ---

    def rows(self, offsets: list[int], data: st.DataObject) -> list[tuple[Any, ...]]:
        values = data.draw(st.lists(VALUES, min_size=len(offsets), max_size=len(offsets)))
        return [(self.clock_us + o, *v) for o, v in zip(offsets, values, strict=True)]

    def accept(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        stream = self.streams[name]
        for query in self.queries.values():
            if query.stream == name:
                query.before_batch(rows, self.clock_us)
        stream.accept(rows, self.clock_us)

    def names(self) -> st.SearchStrategy[str]:
        return st.sampled_from(sorted(self.streams))

    @rule(offsets=OFFSETS, data=st.data())
    def push(self, offsets: list[int], data: st.DataObject) -> None:
        name = data.draw(self.names())
        rows = self.rows(offsets, data)
        receipt = self.engine.push(name, table_of(rows))
        self.accept(name, rows)
        if rows:
            assert receipt.position == len(self.streams[name].rows)

    @rule(offsets=OFFSETS, data=st.data())
    def push_again(self, offsets: list[int], data: st.DataObject) -> None:
        self.push(offsets, data)

    @rule(year=st.sampled_from([YEAR_1_US, YEAR_1_US + 5, YEAR_9999_US]), data=st.data())
    def push_the_ends_of_time(self, year: int, data: st.DataObject) -> None:
        self.push([year - self.clock_us], data)

    @rule(offsets=OFFSETS, step=st.sampled_from([1, 1, 0, 2, -1]), data=st.data())
    def push_numbered(self, offsets: list[int], step: int, data: st.DataObject) -> None:
        name = data.draw(self.names())
        stream = self.streams[name]
        rows = self.rows(offsets, data) or self.rows([0], data)
        number = stream.sequence + step
        if data.draw(st.booleans()):  # As it was, if it has come before.
            rows = stream.numbered.get(number, rows)
        pushed: dict[str, Any] = {"producer": "p", "epoch": stream.epoch, "sequence": number}
        if number < 0 or number > stream.sequence + 1:
            with pytest.raises(SequenceGap):
                self.engine.push(name, table_of(rows), **pushed)
            stream.refuse(len(rows))
            return
        known = stream.numbered.get(number) if number > stream.sequence - CONTENTS_MAX else None
        if known is not None and repr(rows) != repr(known):
            with pytest.raises(SequenceReused):
                self.engine.push(name, table_of(rows), **pushed)
            stream.refuse(len(rows))
            return
        receipt = self.engine.push(name, table_of(rows), **pushed)
        assert receipt.duplicate == (number <= stream.sequence)
        if receipt.duplicate:
            stream.duplicate += len(rows)
        else:
            stream.sequence, stream.numbered[number] = number, rows
            self.accept(name, rows)

    @rule(data=st.data())
    def new_epoch(self, data: st.DataObject) -> None:
        name = data.draw(self.names())
        stream = self.streams[name]
        rows = self.rows([0, SECOND], data)
        stream.epoch += 1
        self.engine.push(name, table_of(rows), producer="p", epoch=stream.epoch)
        stream.sequence, stream.numbered = 0, {0: rows}
        self.accept(name, rows)
        with pytest.raises(StaleEpoch):
            self.engine.push(name, table_of(rows), producer="p", epoch=stream.epoch - 1)
        stream.refuse(2)

    @rule(where=st.sampled_from(["", "x > 2"]), named=st.booleans(), data=st.data())
    def insert(self, where: str, named: bool, data: st.DataObject) -> None:
        """Rows of a stream once more, into it or another one; repeated under a name, once."""
        source, target = data.draw(self.names()), data.draw(self.names())
        held = self.streams[source].rows
        chunks = [  # Each is a batch: later ones may come too late.
            [
                (row.ts, row.k, row.g, row.x, row.b)
                for row in held[first : first + CHUNK_ROWS]
                if not where or (row.x is not None and row.x > 2)
            ]
            for first in range(0, len(held), CHUNK_ROWS)
        ]
        if where and not named and len(held) > CHUNK_ROWS:
            return  # How many rows are gathered for a batch then depends on files.
        self.inserts += 1
        text = f"INSERT INTO {target} SELECT * FROM {source}"
        text += f" WHERE {where}" if where else ""
        text += f" PRODUCER 'copy{self.inserts}'" if named else ""
        for _ in range(1 + named):
            self.engine.execute(text)
        for rows in chunks or [[]]:
            self.accept(target, rows)

    @rule(payload=st.binary(max_size=60), data=st.data())
    def push_nonsense(self, payload: bytes, data: st.DataObject) -> None:
        name = data.draw(self.names())
        with pytest.raises(BadBatch):
            self.engine.append(name, payload, producer="", epoch=0, sequence=None)
        self.streams[name].refuse(0)

    # --- time ---

    @rule(seconds=st.sampled_from([1, 7, 10, 30, 3_600]))
    def time_passes(self, seconds: int) -> None:
        self.clock_us += seconds * SECOND

    @rule(seconds=st.sampled_from([-100, 0, 12, 100, 10**9]), data=st.data())
    def heartbeat(self, seconds: int, data: st.DataObject) -> None:
        name = data.draw(self.names())
        until = self.clock_us + seconds * SECOND
        self.engine.heartbeat(name, until)
        self.streams[name].raise_watermark(min(until, self.clock_us + FUTURE_US))

    # --- storage ---

    @rule(data=st.data())
    def seal(self, data: st.DataObject) -> None:
        self.engine.seal(data.draw(self.names()))

    @rule()
    def checkpoint(self) -> None:
        core = self.engine.core
        core.executor.call(self.engine.checkpoints.now).result()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        before = {name: self.fresh(name) for name in self.queries}
        self.lives += 1
        directory = self.directory
        if not clean:
            self.machine.settle("shedder-runs")  # no run is half copied
            directory = self.root / str(self.lives)
            shutil.copytree(self.directory, directory)
        self.engine.close()
        self.open(directory)
        for stream in self.streams.values():
            stream.duplicate = stream.refused_batches = stream.refused_rows = 0
        for name, answer in before.items():
            same(answer, self.fresh(name))

    # --- what must hold ---

    def fresh(self, name: str) -> Answer:
        self.engine.core.executor.call(lambda: None).result()
        stream = self.queries[name].stream
        receipt = self.engine.push(stream, table_of([]))
        return self.engine.query(name).answer(after=receipt)

    @invariant()
    def every_answer_holds_the_truth(self) -> None:
        for name, query in self.queries.items():
            query.check(self.fresh(name))

    @invariant()
    def the_ledger_is_exact(self) -> None:
        for name, stream in self.streams.items():
            ledger = self.engine.ledger(name)
            rows = len(stream.rows)
            assert ledger.applied == rows
            assert ledger.accepted == rows + stream.duplicate
            assert ledger.duplicate == stream.duplicate
            assert (ledger.refused_batches, ledger.refused_rows) == (
                stream.refused_batches,
                stream.refused_rows,
            )
            assert ledger.late == stream.late
            for entry in ledger.queries:
                query = self.queries[entry.query]
                assert entry.read + entry.thinned + entry.late == rows - query.from_position
                assert entry.late == query.late_rows
                assert query.was_thinned or not entry.thinned


def same(before: Answer, after: Answer) -> None:
    """Two answers say the same, whatever the order of groups."""
    assert (before.start_us, before.end_us, before.late) == (
        after.start_us,
        after.end_us,
        after.late,
    )
    if before.late:  # What late tuples may have been widens with all that has come since.
        return
    ordered = [sorted(map(repr, answer.rows())) for answer in (before, after)]
    assert ordered[0] == ordered[1]


@pytest.mark.slow
def test_an_engine_tells_the_truth_whatever_is_done_to_it() -> None:
    """Each run draws different steps. Shrinking is off: it would restart engines for minutes."""
    hypothesis.seed(seed("state machine"))(EngineMachine)
    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=scaled(30, 150),
            stateful_step_count=scaled(40, 50),
            phases=[Phase.explicit, Phase.generate],
        ),
    )
