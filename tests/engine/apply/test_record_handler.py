"""The table of record kinds: what is logged is what recovery reads, for every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from shedder.archive.log.records import (
    Batch,
    Built,
    Heartbeat,
    Idle,
    Level,
    LevelFrom,
    RecordType,
    Sizes,
)
from shedder.archive.log.setting_changes import QueryAltered
from shedder.archive.log.table_changes import ChangeKind, TableChange
from shedder.engine.apply.level_records import change_levels
from shedder.engine.apply.record_handler import KINDS, Timing
from shedder.engine.apply.size_records import submit_sizes
from shedder.engine.engine import Engine
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from tests.engine.query_worlds import CREATE, SECOND, START, WINDOW, second


def test_every_kind_of_record_but_marks_has_an_effect():
    assert set(KINDS) == set(RecordType) - {RecordType.MARK}


@pytest.mark.slow
def test_every_kind_of_record_is_read_from_the_log_as_it_was_written(tmp_path: Path) -> None:
    rare = {"checkpoint_seconds": 1e6, "allocation_seconds": 1e6}
    with Engine.open(tmp_path / "data", **rare, overload="off", audit="off") as db:
        db.execute(CREATE)
        db.register("q", f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW}")
        core = db.core
        stream, standing_query = core.standing_query("q")
        db.push("s", second(0, 10))
        summariser = Summariser(Plans.from_json(db.plans("s")))
        summariser.add(second(1, 10).to_batches()[0])
        db.merge("s", summariser.summaries().to_bytes(), producer="p", sequence=0)
        db.heartbeat("s", START * SECOND)
        sizes = tuple(part.size for part in standing_query.state.plan.parts)
        submit_sizes(core, stream, "q", sizes, 4 << 20).result()
        db.budgets.set_weight("q", 7)
        change_levels(core, stream, "q", (2, 2), forced=[0])
        db.services.load_levels.want({("s", "q"): {1: 4}})
        core.executor.call(lambda: None).result()
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        db.execute("INSERT INTO t VALUES (7)")
        idle = Idle(stream.id, START * SECOND)
        core.log_queue.write(RecordType.IDLE, [idle.to_bytes()], idle)
        db.push("s", second(2, 10))  # Its record is behind that of the level.

        found = {}
        for record in core.store.log.read(core.store.log.first_sequence):
            if record.kind in KINDS:
                kind = KINDS[record.kind]
                header = kind.header(record)
                found[record.kind] = header, kind.token(header, record, stream.schema)
        assert found.keys() == KINDS.keys()
        assert {type(header) for header, _ in found.values()} == {
            Batch,
            Built,
            Heartbeat,
            Idle,
            Level,
            LevelFrom,
            Sizes,
            QueryAltered,
            TableChange,
        }
        tuples, built = found[RecordType.BATCH][1], found[RecordType.BUILT][1]
        assert isinstance(tuples, PendingRecord)
        assert isinstance(built, PendingRecord)
        assert tuples.content.to_pydict() == second(2, 10).to_pydict()
        assert (tuples.header, built.header) == (
            found[RecordType.BATCH][0],
            found[RecordType.BUILT][0],
        )
        assert built.content.summaries.rows == 10
        assert found[RecordType.HEARTBEAT][1].watermark_us == START * SECOND
        assert found[RecordType.IDLE][0] == idle
        assert found[RecordType.LEVEL][1].levels == (2, 2)
        assert found[RecordType.LEVEL][1].forced == {0}
        assert found[RecordType.SIZES][1].sizes == sizes
        assert found[RecordType.ALTERED][1] == QueryAltered(stream.id, "q", 7.0, active=True)
        put = found[RecordType.TABLE][1]
        assert (put.header.kind, put.header.version) == (ChangeKind.UPSERT, 1)
        assert put.batch.to_pydict() == {"k": [7]}
        early = found[RecordType.LEVEL_FROM][1]
        assert early.levels == standing_query.state.levels
        assert early.levels[1] == 4
        assert early.from_sequence < record.sequence


def test_what_takes_effect_out_of_order_is_what_sheds_work_or_changes_no_tuple():
    assert {kind: each.timing for kind, each in KINDS.items()} == {
        **dict.fromkeys(KINDS, Timing.IN_ORDER),
        RecordType.LEVEL_FROM: Timing.BEFOREHAND,
        RecordType.ALTERED: Timing.WHEN_DURABLE,
    }
