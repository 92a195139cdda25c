"""A past that was written elsewhere: all of it or none, and answers as if it had been pushed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shedder.archive.files.file_system import OsFiles
from shedder.archive.operations.verify import check
from shedder.archive.runs.external_run import SentFile
from shedder.engine.engine import Engine
from shedder.engine.rebuild.backfill import BackfillState
from shedder.engine.runtime.environment import Environment
from shedder.engine.runtime.serial_executor import SerialExecutor
from shedder.errors import (
    BadBatch,
    BadSetting,
    BeforeRetention,
    CommitUnknown,
    DiskFull,
    FailedPrecondition,
    InternalError,
    PlansChanged,
    SchemaMismatch,
    Unimplemented,
)
from spark_ingest.parts import send_part
from tests.engine.backfilled import (
    LAYOUTS,
    PAST,
    QUERIES,
    QUESTION,
    SECOND,
    answers_of,
    created,
    now_us,
    opened,
    rows,
    truth,
)
from tests.engine.catalogs import Connection, connection_of, full_catalog
from tests.scale import scaled
from tests.seeds import seed

LIVE = rows(2_000, 3, 61, 20)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with created(tmp_path / "data") as engine:
        yield engine


def sent(db: Engine, past: list[pa.Table] = PAST, name: str = "old") -> BackfillState:
    """All parts of a backfill, sent."""
    state = db.backfills.begin_backfill("s", name, "a plan", len(past))
    newest = max(int(table["ts"].cast(pa.int64()).to_numpy().max()) for table in past)
    watermark = newest - 5 * SECOND if state.watermark_us is None else state.watermark_us
    for part, table in enumerate(past):
        send_part(db.backfills, state, name, part, table, watermark_us=watermark)
    return state


def adopted(db: Engine, past: list[pa.Table] = PAST, name: str = "old", **more: Any) -> int:
    sent(db, past, name)
    return db.backfills.adopt_backfill("s", name, rows=sum(map(len, past)), **more).rows


def answers(db: Engine, stream: str, queries: dict[str, str] = QUERIES) -> dict[str, Any]:
    return {name: sorted(db.query(f"{name}_{stream}").answer().rows(), key=str) for name in queries}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("turn", range(scaled(1, 2)))
def test_a_backfilled_past_answers_as_if_it_had_been_pushed(
    tmp_path: Path, layout: str, turn: int
) -> None:
    """Live tuples come before the backfill or after it; a change has both, by turns of layouts."""
    live_first = (LAYOUTS.index(layout) + turn + seed("live first")) % 2 == 0
    with created(tmp_path / "data", layout) as db:
        db.push("pushed", pa.concat_tables([*PAST, LIVE]))
        if live_first:
            db.push("s", LIVE)
            assert answers_of(db) == truth(LIVE)
        assert adopted(db) == 7_000
        if not live_first:
            assert answers_of(db) == truth(*PAST)
            db.push("s", LIVE)
        assert answers_of(db) == truth(*PAST, LIVE)
        assert answers(db, "s") == answers(db, "pushed")
        ledger = db.ledger("s")
        assert (ledger.accepted, ledger.applied, ledger.backfilled) == (2_000, 2_000, 7_000)
        assert db.execute("SHOW STREAMS").rows()[1]["tuples"] == 9_000
    assert check(tmp_path / "data", OsFiles()).ok
    with opened(tmp_path / "data") as db:  # It is all on disk.
        assert answers_of(db) == truth(*PAST, LIVE)
        assert answers(db, "s") == answers(db, "pushed")
        assert db.ledger("s").backfilled == 7_000
        db.push("s", rows(100, 4, 82, 30))
        db.push("pushed", rows(100, 4, 82, 30))
        assert answers(db, "s") == answers(db, "pushed")


@pytest.mark.slow
def test_a_query_registered_afterwards_reads_the_past_too(db: Engine) -> None:
    db.push("s", LIVE)
    adopted(db)
    later = db.register("later", QUERIES["ever"].format("s"))
    assert later.answer().rows()[0]["n"] == 9_000
    assert later.answer().rows() == db.query("ever_s").answer().rows()


@pytest.mark.slow
def test_a_target_is_met_from_the_archive_and_holds_the_truth(db: Engine) -> None:
    db.push("s", LIVE)
    adopted(db)
    answer = db.execute("SELECT AVG(k) AS a FROM s WITHIN 5 PERCENT CONFIDENCE 95 PERCENT")
    (row,) = answer.rows()
    right = float(np.mean(np.concatenate([t["k"].to_numpy() for t in (*PAST, LIVE)])))
    assert row["a_low"] <= right <= row["a_high"]
    within = "[FROM TIMESTAMP '1970-01-01 00:01:01' TO TIMESTAMP '1970-01-01 00:02:00']"
    assert db.execute(f"SELECT COUNT(*) AS n FROM s {within}").rows()[0]["n"] == 2_000


@pytest.mark.slow
def test_nothing_is_adopted_twice(db: Engine) -> None:
    adopted(db)
    again = db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert (again.rows, again.duplicate) == (7_000, True)
    assert db.backfills.begin_backfill("s", "old").adopted == 7_000
    assert answers_of(db) == truth(*PAST)


@pytest.mark.slow
def test_one_backfill_after_the_other_goes_further_back(db: Engine) -> None:
    db.push("s", LIVE)
    adopted(db, PAST[1:], "recent")
    adopted(db, PAST[:1], "long-ago")
    first, second = (
        db.backfills.begin_backfill("s", name).first_position for name in ("long-ago", "recent")
    )
    assert first < second < 0
    assert answers_of(db) == truth(*PAST, LIVE)


@pytest.mark.slow
def test_parts_that_are_done_stay_done_over_a_restart_and_a_part_may_come_again(
    tmp_path: Path,
) -> None:
    with created(tmp_path / "data") as db:
        state = db.backfills.begin_backfill("s", "old", "a plan", 2)
        send_part(db.backfills, state, "old", 0, PAST[0], poison=3, watermark_us=50 * SECOND)
        send_part(db.backfills, state, "old", 0, PAST[0], poison=3, watermark_us=50 * SECOND)
    orphan = tmp_path / "data/backfills/1/orphan.parquet"
    orphan.write_bytes(b"of a part that was never done")
    with opened(tmp_path / "data") as db:
        assert not orphan.exists()
        state = db.backfills.begin_backfill("s", "old", "another plan", 7)
        assert (state.plan, state.done) == ("a plan", {0: (4_000, 3)})
        with pytest.raises(FailedPrecondition, match="has 4,003 rows, its source 7,003"):
            db.backfills.adopt_backfill("s", "old", rows=7_003)
        send_part(db.backfills, state, "old", 1, PAST[1], watermark_us=50 * SECOND)
        assert db.backfills.adopt_backfill("s", "old", rows=7_003).rows == 7_000
        assert answers_of(db) == truth(*PAST)
    assert list((tmp_path / "data/backfills/1").iterdir()) == []


@pytest.mark.slow
def test_parts_whose_files_are_gone_are_to_be_done_again(tmp_path: Path) -> None:
    with created(tmp_path / "data") as db:
        sent(db)
    shutil.rmtree(tmp_path / "data/backfills")  # As in a backup, which leaves them out.
    with opened(tmp_path / "data") as db:
        assert db.backfills.begin_backfill("s", "old").done == {}
        adopted(db)
        assert answers_of(db) == truth(*PAST)


@pytest.mark.slow
def test_an_adoption_that_the_catalog_refuses_has_changed_nothing(db: Engine) -> None:
    db.push("s", LIVE)
    before = answers(db, "s")
    sent(db)
    with full_catalog(db), pytest.raises(DiskFull):
        db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert answers_of(db) == truth(LIVE)
    assert answers(db, "s") == before
    assert list((db.core.store.directory / "runs/1").iterdir()) == []
    db.push("pushed", pa.concat_tables([*PAST, LIVE]))
    db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert answers_of(db) == truth(*PAST, LIVE)
    assert answers(db, "s") == answers(db, "pushed")


class NoThreads(Environment):
    """A machine that has no thread for exact answers of standing queries."""

    def __init__(self) -> None:
        super().__init__(now_us)

    def pool(self, name: str) -> Executor:
        return NoThread() if name == "shedder-exact-slides" else super().pool(name)


class NoThread(ThreadPoolExecutor):
    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        raise RuntimeError("can't start new thread")


@pytest.mark.slow
def test_a_query_that_fails_when_all_is_adopted_costs_no_tuples(tmp_path: Path) -> None:
    """The files of the past had been removed then, although the catalog had them."""
    exact = f"{QUERIES['wide']} WITHIN 0.000001 PERCENT ELSE EXACT"
    queries = {"ever": QUERIES["ever"], "wide": exact}
    with created(tmp_path / "data", queries=queries, machine=NoThreads()) as db:
        assert adopted(db) == 7_000
        assert answers_of(db) == truth(*PAST)
        with pytest.raises(InternalError, match="wide_s"):
            db.query("wide_s").answer()
        assert db.query("ever_s").answer().rows()[0]["n"] == 7_000
    assert check(tmp_path / "data").damages == []
    with opened(tmp_path / "data") as db:
        assert answers_of(db) == truth(*PAST)


class Interrupted(Environment):
    """A machine on which waiting for the next adoption is interrupted, as by Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(now_us)
        self.interrupts = False

    def executor(self) -> SerialExecutor:
        return GivenUp(self)


class GivenUp(SerialExecutor):
    def __init__(self, machine: Interrupted) -> None:
        super().__init__()
        self._machine = machine

    def call(self, work: Callable[[], Any], *, urgent: bool = False) -> Future[Any]:
        future = super().call(work, urgent=urgent)
        if self._machine.interrupts and "adopt_backfill" in work.__qualname__:
            self._machine.interrupts = False
            return NotAwaited(future)
        return future


class NotAwaited(Future[Any]):
    """A future that is done when another is; waiting for its result is interrupted."""

    def __init__(self, of: Future[Any]) -> None:
        super().__init__()
        of.add_done_callback(lambda _: self.set_result(None))

    def result(self, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_who_gives_up_waiting_for_an_adoption_takes_no_files_from_it(tmp_path: Path) -> None:
    """As Ctrl-C does, while it is carried out."""
    machine = Interrupted()
    with created(tmp_path / "data", machine=machine) as db:
        sent(db)
        machine.interrupts = True
        with pytest.raises(KeyboardInterrupt):
            db.backfills.adopt_backfill("s", "old", rows=7_000)
        assert not machine.interrupts
        assert db.backfills.adopt_backfill("s", "old", rows=7_000).duplicate
        assert answers_of(db) == truth(*PAST)
    assert check(tmp_path / "data").damages == []


class Deadly(OsFiles):
    """Real files; the process exits when the names of linked files have become durable.

    armed: whether the process exits.
    """

    def __init__(self) -> None:
        self.armed = False
        self._linked: set[Path] = set()

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._linked.add(target.parent)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if self.armed and path in self._linked:
            os._exit(9)


def fail_durable_adoption(connection: Connection) -> None:
    """Let the commit of an adoption fail once it is durable, and every commit after it."""

    def fail(_: set[str]) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def fail_after(changed: set[str]) -> None:
        if {"runs", "backfills"} <= changed:
            connection.before_commit = fail
            fail(changed)

    connection.after_commit = fail_after


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["files linked", "catalog told", "committed", "unknown"])
def test_a_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path, moment: str) -> None:
    directory = tmp_path / "data"
    created(directory).close()
    child = os.fork()
    if not child:  # pragma: no cover - the child is killed
        with suppress(BaseException):
            files = Deadly()
            db = opened(directory, Environment(now_us, files))
            db.push("s", LIVE)
            sent(db)
            files.armed = moment == "files linked"

            def dying(changed: set[str]) -> None:
                if {"runs", "backfills"} <= changed:
                    os._exit(9)

            if moment == "catalog told":
                connection_of(db).before_commit = dying
            elif moment == "committed":
                connection_of(db).after_commit = dying
            elif moment == "unknown":
                fail_durable_adoption(connection_of(db))
            try:
                db.backfills.adopt_backfill("s", "old", rows=7_000)
            except CommitUnknown:
                os._exit(9)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    with opened(directory) as db:
        if moment in ("committed", "unknown"):
            assert db.backfills.adopt_backfill("s", "old", rows=7_000).duplicate
        else:
            assert answers_of(db) == truth(LIVE)
            assert len(db.backfills.begin_backfill("s", "old").done) == 2
            assert not db.backfills.adopt_backfill("s", "old", rows=7_000).duplicate
        assert answers_of(db) == truth(*PAST, LIVE)
        db.push("pushed", pa.concat_tables([*PAST, LIVE]))
        assert answers(db, "s") == answers(db, "pushed")
        assert check_of(db) == []


def check_of(db: Engine) -> list[str]:
    db.close()
    return check(db.core.store.directory, OsFiles()).damages


@pytest.mark.slow
def test_a_query_that_came_after_the_parts_were_built_asks_for_panes_again(db: Engine) -> None:
    state = sent(db)
    db.register("new", QUERIES["ever"].format("s"))
    with pytest.raises(PlansChanged, match="before query 'new' was registered"):
        db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert db.ledger("s").backfilled == 0
    state = db.backfills.begin_backfill("s", "old")
    for part, table in enumerate(PAST):
        send_part(db.backfills, state, "old", part, table, watermark_us=50 * SECOND, runs=False)
    db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert db.query("new").answer().rows()[0]["n"] == 7_000


@pytest.mark.slow
def test_a_backup_during_a_refused_adoption_takes_no_files_from_the_next(db: Engine) -> None:
    """The end of a backup removes what was to go meanwhile, under the names of that moment."""
    late = rows(5, 9, 40, 1)
    db.push("s", pa.concat_tables([LIVE, late]))
    sent(db)
    with db.core.store.kept():
        with pytest.raises(FailedPrecondition, match="overlap"):
            db.backfills.adopt_backfill("s", "old", rows=7_000)
        db.backfills.adopt_backfill("s", "old", rows=7_000, overlap=True)
    assert answers_of(db) == truth(*PAST, LIVE, late)
    assert check_of(db) == []


@pytest.mark.slow
def test_times_that_overlap_are_refused_unless_they_may(db: Engine) -> None:
    db.push("s", pa.concat_tables([LIVE, rows(5, 9, 40, 1)]))  # Five that came late.
    sent(db)
    with pytest.raises(FailedPrecondition, match=r"overlap those of tuples in the log, 1970-01-01"):
        db.backfills.adopt_backfill("s", "old", rows=7_000)
    assert db.backfills.adopt_backfill("s", "old", rows=7_000, overlap=True).rows == 7_000
    assert answers_of(db) == truth(*PAST, LIVE, rows(5, 9, 40, 1))
    sent(db, name="again")
    with pytest.raises(FailedPrecondition, match="overlap those of run 1/-"):
        db.backfills.adopt_backfill("s", "again", rows=7_000)
    db.backfills.abandon_backfill("s", "again")
    assert list((db.core.store.directory / "backfills/1").iterdir()) == []


def test_what_the_stream_does_not_retain_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as db:
        db.execute(
            "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE) "
            "TIMESTAMP BY ts RETAIN INTERVAL '40' SECOND"
        )
        db.push("s", LIVE)
        sent(db)
        with pytest.raises(BeforeRetention, match="leave older ones out"):
            db.backfills.adopt_backfill("s", "old", rows=7_000)
        assert adopted(db, [rows(500, 5, 45, 10)], "kept") == 500


class Tampering:
    """Hands a part on, with a change of its last file."""

    def __init__(self, db: Engine, change: Any) -> None:
        self.db, self.change, self.data = db, change, bytearray()

    def write_backfill(self, *arguments: Any) -> None:
        self.data += arguments[-1]

    def finish_backfill_part(self, *arguments: Any, sent: list[SentFile], **facts: Any) -> None:
        data, file = self.change(bytes(self.data), sent[-1])
        stream, name, part, attempt = arguments
        self.db.backfills.write_backfill(stream, name, part, attempt, 0, 0, data)
        self.db.backfills.finish_backfill_part(*arguments, sent=[file], **facts)


def refusal(db: Engine, change: Any) -> str:
    state = db.backfills.begin_backfill("s", "old", "a plan", 1)
    with pytest.raises((BadBatch, SchemaMismatch)) as refused:
        send_part(Tampering(db, change), state, "old", 0, PAST[0], watermark_us=0)
    assert db.backfills.begin_backfill("s", "old").done == {}
    assert not list((db.core.store.directory / "tmp").glob("backfill-*"))
    return str(refused.value)


def again(table: pa.Table, source: pq.ParquetFile, **options: Any) -> tuple[bytes, int]:
    import google_crc32c

    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(source.metadata.metadata), sink, **options)
    data = sink.getvalue().to_pybytes()
    return data, google_crc32c.value(data)


def rewritten(change: Any) -> Any:
    """The file written anew with other rows, its checksum told as it is."""

    def tamper(data: bytes, file: SentFile) -> tuple[bytes, SentFile]:
        source = pq.ParquetFile(pa.BufferReader(data))
        groups = [source.metadata.row_group(at).num_rows for at in range(source.num_row_groups)]
        new, crc = again(change(source.read()), source, row_group_size=max(groups))
        return new, SentFile(file.first_position, file.end_position, len(new), crc)

    return tamper


def test_a_file_that_was_damaged_on_its_way_is_refused_by_name(db: Engine) -> None:
    def flip(data: bytes, file: SentFile) -> tuple[bytes, SentFile]:
        return data[:5_000] + bytes([data[5_000] ^ 1]) + data[5_001:], file

    said = refusal(db, flip)
    assert said.startswith("run 1/-000000000429")
    assert "with checksum" in said


@pytest.mark.slow
def test_a_file_that_lies_about_itself_is_refused(db: Engine) -> None:
    def corrupted(data: bytes, file: SentFile) -> tuple[bytes, SentFile]:
        import google_crc32c

        wrong = data[:5_000] + bytes([data[5_000] ^ 1]) + data[5_001:]
        crc = google_crc32c.value(wrong)
        return wrong, SentFile(file.first_position, file.end_position, len(wrong), crc)

    assert "fail their checksum" in refusal(db, corrupted)

    def shifted(data: bytes, file: SentFile) -> tuple[bytes, SentFile]:
        return data, SentFile(
            file.first_position + 1, file.end_position + 1, file.size_bytes, file.crc
        )

    assert "shedder.first_position" in refusal(db, shifted)


@pytest.mark.slow
def test_other_types_are_refused_by_column_and_both_types(db: Engine) -> None:
    def as_text(table: pa.Table) -> pa.Table:
        at = table.column_names.index("k")
        return table.set_column(at, "k", table["k"].cast(pa.string()))

    assert "column 'k' is string, not int64" in refusal(db, rewritten(as_text))
    assert "its columns are" in refusal(db, rewritten(lambda table: table.drop_columns(["x"])))


def test_only_known_names_and_only_the_bytes_that_come_next_are_taken(db: Engine) -> None:
    with pytest.raises(BadSetting, match="no name of a backfill"):
        db.backfills.begin_backfill("s", "../../etc", "a plan", 1)
    with pytest.raises(FailedPrecondition, match="has not begun"):
        db.backfills.begin_backfill("s", "nothing")
    db.backfills.begin_backfill("s", "old", "a plan", 1)
    with pytest.raises(BadSetting, match="attempt"):
        db.backfills.write_backfill("s", "old", 0, "../a", 0, 0, b"bytes")
    db.backfills.write_backfill("s", "old", 0, "a", 0, 0, b"bytes")
    db.backfills.write_backfill("s", "old", 0, "a", 0, 0, b"bytes")
    with pytest.raises(FailedPrecondition, match="bytes 5 to 9 of file 0"):
        db.backfills.write_backfill("s", "old", 0, "a", 0, 9, b"more")
    db.backfills.write_backfill(
        "s", "old", 0, "a", 0, 0, b"bytes and"
    )  # Of which a part had no room.
    db.backfills.write_backfill("s", "old", 0, "a", 0, 9, b" more")


@pytest.mark.slow
def test_insert_reads_what_was_backfilled_but_cannot_number_it(db: Engine) -> None:
    db.push("s", LIVE)
    adopted(db)
    with pytest.raises(Unimplemented, match="7,000 of the tuples of 's' were backfilled"):
        db.execute("INSERT INTO pushed SELECT ts, k, g, x FROM s PRODUCER 'again'")
    db.execute("CREATE STREAM copied (ts TIMESTAMP NOT NULL, k BIGINT, x DOUBLE) TIMESTAMP BY ts")
    said = db.execute("INSERT INTO copied SELECT ts, k, x FROM s WHERE k < 250")
    everything = pa.concat_tables([*PAST, LIVE])
    kept = everything.filter(pc.less(everything["k"], 250))
    assert f"{len(kept):,} rows inserted" in str(said)
    copied = db.execute(QUESTION.format("copied")).rows()[0]
    assert (copied["n"], copied["s"], copied["l"]) == truth(kept)[:3]
    only_late = "INSERT INTO copied SELECT ts, k, x FROM s [FROM TIMESTAMP '1970-01-01 00:01:01']"
    db.execute(only_late + " PRODUCER 'again'")
    assert db.execute("SELECT COUNT(*) AS n FROM copied").rows()[0]["n"] == len(kept) + len(LIVE)


@pytest.mark.slow
def test_pushes_go_on_while_a_past_is_adopted(db: Engine) -> None:
    batches = [rows(50, seed, 61 + seed, 1) for seed in range(120)]
    sent(db)
    begun, is_adopted = threading.Event(), threading.Event()

    def push() -> None:
        with db.producer("s", "live") as out:
            for number, batch in enumerate(batches):
                out.push(batch)
                begun.set()
                if number == 100:  # What is left comes afterwards.
                    is_adopted.wait()

    pusher = threading.Thread(target=push)
    pusher.start()
    begun.wait()
    try:
        assert db.backfills.adopt_backfill("s", "old", rows=7_000).rows == 7_000
        assert db.execute("SELECT COUNT(*) AS n FROM s").rows()[0]["n"] >= 7_000
    finally:
        is_adopted.set()
        pusher.join()
    assert answers_of(db) == truth(*PAST, *batches)
    ledger = db.ledger("s")
    assert (ledger.accepted, ledger.applied, ledger.backfilled) == (6_000, 6_000, 7_000)
    db.push("pushed", pa.concat_tables([*PAST, *batches]))
    assert answers(db, "s") == answers(db, "pushed")


@pytest.mark.slow
def test_the_deal_is_the_streams_own_and_any_blocks_are_a_simple_random_sample(db: Engine) -> None:
    """Every row of a run is as likely as any other to be in a block: chi-square over many runs."""
    many = [rows(4_000, seed, seed, 1) for seed in range(40)]
    adopted(db, many)
    runs = db.core.store.runs(db.core.stream("s").id)
    assert len(runs) == 40
    of_first = np.zeros(8)
    for run in runs:
        path = db.core.store.directory / "runs" / run.file
        group = pq.ParquetFile(path).read_row_group(0, columns=["__position"])
        places = group["__position"].to_numpy() - run.first_position
        of_first += np.bincount(places * 8 // 4_000, minlength=8)
    expected = of_first.sum() / 8
    chi_square = float(((of_first - expected) ** 2 / expected).sum())
    assert chi_square < 24.3  # The 99.9 % quantile of 7 degrees of freedom.
