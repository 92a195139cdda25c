"""Registration of row queries: where they begin, what they refuse, and their limits of memory."""

import math
import threading
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import FORMAT_ROWS, FORMAT_TABLE_CHANGES, format_of
from shedder.engine.engine import Engine
from shedder.engine.registration.registration_wait import RegistrationWait
from shedder.engine.runtime.caller import Caller
from shedder.errors import (
    BadQuery,
    BadSetting,
    DeadlineExceeded,
    DiskFull,
    QueryExists,
    RowQueryFailed,
    StreamInUse,
    Unimplemented,
    UnknownQuery,
    UnknownStream,
)
from tests.engine.catalogs import full_catalog, reachable
from tests.engine.dataflow.worlds import CREATE, PICKED, START_US, Subscriber, applied, batch

WINDOWED = "SELECT id FROM s [RANGE INTERVAL '0.0001' SECOND] WHERE kind > 2"


@pytest.fixture
def db(tmp_path):
    with Engine.open(tmp_path / "data", row_query_bytes_max=1 << 20) as db:
        db.execute(CREATE)
        yield db


def push(db, *rows):
    db.push("s", batch(list(rows)))


def ids(answer):
    return answer.table["id"].to_pylist()


def test_query_without_a_window_begins_at_the_present_position(db):
    push(db, (0, 1, 5), (900, 2, 5))  # The second waits for the watermark.
    query = db.register("q", PICKED)
    push(db, (1_000, 3, 5), (1_001, 4, 0))
    db.heartbeat("s", START_US + 2_000)
    assert ids(query.answer()) == [3]


def test_window_begins_with_its_past_from_archive_and_tail(db):
    push(db, (0, 1, 5), (901, 2, 5), (950, 3, 5), (940, 4, 1))
    db.seal("s")
    push(db, (960, 5, 4), (1_020, 6, 4))
    query = db.register("w", WINDOWED)
    assert sorted(ids(query.answer())) == [2, 3, 5]  # As of 1,000.
    changes = query.subscribe()
    db.heartbeat("s", START_US + 1_060)
    assert sorted(ids(query.answer())) == [5, 6]
    assert [(row["id"], row["_sign"]) for row in next(changes).rows()] == [(6, 1)]


def test_same_query_again_is_the_same_and_another_is_refused(db):
    first = db.register("q", PICKED)
    assert db.register("q", PICKED).answer().resume == first.answer().resume
    with pytest.raises(QueryExists, match="exists with another text"):
        db.register("q", WINDOWED)
    with pytest.raises(QueryExists, match="exists with another text"):
        db.register("q", "SELECT COUNT(*) AS n FROM s")
    db.register("n", "SELECT COUNT(*) AS n FROM s")
    with pytest.raises(QueryExists, match="exists with another text"):
        db.execute(f"CREATE QUERY n AS {PICKED}")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT id FROM s ORDER BY id", BadQuery, "ORDER BY, LIMIT and OFFSET"),
        ("SELECT id FROM s LIMIT 5", BadQuery, "ORDER BY, LIMIT and OFFSET"),
        ("SELECT DISTINCT id FROM s", BadQuery, r"give it a window, such as s \[RANGE"),
        ("SELECT t.id FROM t LEFT JOIN s ON s.id = t.id", Unimplemented, "rows of a table without"),
        ("SELECT id FROM missing", UnknownStream, "no stream 'missing'"),
    ],
)
def test_what_cannot_stand_is_refused_and_leaves_nothing(db, text, error, message):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with pytest.raises(error, match=message):
        db.register("q", text)
    assert db.execute("SHOW QUERIES").table.num_rows == 0
    db.execute("DROP STREAM s")


def test_explain_prints_the_watermark_of_each_input_as_a_time(db):
    db.register("q", PICKED)
    db.heartbeat("s", 1_767_610_799_989_411)
    plan = "\n".join(db.execute("EXPLAIN q").table["plan"].to_pylist())
    assert "as of 2026-01-05 10:59:59.989411, 0 late" in plan


def test_statements_know_row_queries(db):
    granted = db.execute(f"CREATE QUERY q AS {PICKED}").rows()
    assert {"granted": "streams", "value": "s"} in granted
    assert {"granted": "size_bytes_max", "value": "1,048,576 bytes"} in granted
    [shown] = db.execute("SHOW QUERIES").rows()
    assert shown == {
        "query": "q",
        "streams": ["s"],
        "failed": None,
        "text": PICKED,
        "stream": "s",
    }
    described = {row["key"]: row["value"] for row in db.execute("DESCRIBE q").rows()}
    assert described["text"] == PICKED
    assert f"text: {PICKED}" in "\n".join(db.execute("EXPLAIN q").table["plan"].to_pylist())
    planned = db.execute(f"EXPLAIN CREATE QUERY r AS {PICKED}").rows()
    assert {"granted": "text", "value": PICKED} in planned
    assert "late" in db.control("query", "q")["key"].to_pylist()
    for refused in (
        "ALTER QUERY q SET THINNING 1/2",
        "ALTER QUERY q SET WEIGHT 2",
        "ALTER QUERY q SET INACTIVE",
    ):
        with pytest.raises(BadQuery, match="query 'q' returns rows"):
            db.execute(refused)
    db.execute("DROP QUERY q")
    with pytest.raises(UnknownQuery):
        db.query("q")
    assert db.register("q", PICKED).answer().table.num_rows == 0


def test_explain_shows_how_far_each_stream_has_been_read(db):
    db.execute(CREATE.replace(" s ", " other "))
    query = db.register(
        "q",
        "SELECT s.id FROM s [RANGE INTERVAL '1' HOUR] JOIN other [RANGE INTERVAL '1' HOUR] "
        "ON s.id = other.id",
    )
    [shown] = db.execute("SHOW QUERIES").rows()
    assert (shown["streams"], shown["stream"]) == (["s", "other"], "s, other")
    assert db.execute("SHOW QUERIES").outputs == ("query", "streams", "failed", "text")
    assert "stream" not in db.execute("SHOW VIEWS").outputs
    described = {row["key"]: row["value"] for row in db.execute("DESCRIBE q").rows()}
    assert described["streams"] == described["stream"] == "s, other"
    db.heartbeat("s", START_US + 1_500_000)
    as_of = datetime.fromtimestamp(START_US / 1e6 + 1.5, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    explained = query.explain()
    assert f"s: stream s, reads id, ts; as of {as_of}, 0 late" in explained
    assert "other: stream other, reads id, ts; nothing has come, 0 late" in explained


def test_receipt_of_another_stream_is_refused(db):
    db.execute(CREATE.replace(" s ", " other "))
    query, receipt = db.register("q", PICKED), db.push("other", batch([(0, 1, 5)]))
    with pytest.raises(BadSetting, match="is of stream 'other', and query 'q' reads s"):
        query.answer(after=receipt)


def test_stream_in_use_is_neither_dropped_nor_deleted_from(db):
    db.register("q", PICKED)
    push(db, (0, 1, 5))
    with pytest.raises(StreamInUse, match="row queries: q; drop them first"):
        db.execute("DROP STREAM s")
    with pytest.raises(StreamInUse, match="row queries: q; DELETE cannot take back"):
        db.execute("DELETE FROM s WHERE id = 1")
    db.execute("DROP QUERY q")
    assert "1 rows deleted" in db.execute("DELETE FROM s WHERE id = 1").rows()[0]["status"]
    db.execute("DROP STREAM s")


def test_fault_of_a_query_ends_that_query_alone(db):
    broken, whole = db.register("broken", PICKED), db.register("whole", PICKED)
    count, reader = db.register("n", "SELECT COUNT(*) AS n FROM s"), broken.subscribe()
    push(db, (0, 1, 5), (1, 2, 5))
    end_by_fault(db, "broken")
    push(db, (1, 3, 5))
    db.heartbeat("s", START_US + 2)
    for ask in (broken.answer, lambda: next(reader), broken.latest):
        with pytest.raises(RowQueryFailed, match=r"'broken' failed \(ZeroDivisionError\)"):
            ask()
    assert ids(whole.answer()) == [1, 2, 3]
    assert count.answer().rows()[0]["n"] == 3


def end_by_fault(db, name):
    query = db.core.rows.queries[name]
    db.core.executor.call(lambda: query.guard(lambda: fail(ZeroDivisionError()))).result()


def fail(error):
    raise error


def test_failed_query_says_so_also_after_a_receipt(db):
    query = db.register("q", PICKED)
    end_by_fault(db, "q")
    receipt = db.push("s", batch([(0, 1, 5)]))
    with pytest.raises(RowQueryFailed, match="ZeroDivisionError"):
        query.answer(after=receipt)


@pytest.mark.slow
def test_failed_query_with_many_kept_rows_does_not_spare_the_others(tmp_path):
    """Above the limit of all queries together, the largest of those that still grow ends."""
    kept_max = 1 << 26  # All together: 1/8 of memory_bytes, 32 MiB.
    sizes = {"memory_bytes": 1 << 28, "row_output_bytes_max": kept_max}
    texts = pa.array(["x" * 4096] * 2048)  # 8 MiB.

    def push_texts(at):
        times = pa.array([START_US + at] * len(texts), pa.timestamp("us"))
        db.push("t", pa.table({"ts": times, "text": texts}))

    with Engine.open(tmp_path / "d", **sizes) as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP, text VARCHAR) TIMESTAMP BY ts")
        kept = db.register("kept", "SELECT text FROM t")
        for at in range(3):
            push_texts(at)
        db.heartbeat("t", START_US + 3)
        db.core.rows.queries["kept"].guard(lambda: fail(ZeroDivisionError()))
        waits = db.register("waits", "SELECT text FROM t")
        for _ in range(2):
            push_texts(4)
        with pytest.raises(RowQueryFailed, match="all row queries hold"):
            waits.answer()
        with pytest.raises(RowQueryFailed, match="ZeroDivisionError"):
            kept.answer()


@pytest.mark.slow
def test_rows_of_a_heartbeat_count_in_the_limit_of_all_queries(tmp_path):
    """The tuples that wait take less than the rows of the relation, and the kept rows."""
    with Engine.open(tmp_path / "d", memory_bytes=1 << 28, row_output_bytes_max=1 << 26) as db:
        db.execute(CREATE)
        query = db.register("q", "SELECT id, kind FROM s [RANGE 1 HOUR]")
        for first in range(0, 200_000, 50_000):
            db.push("s", batch([(5, at, 5) for at in range(first, first + 50_000)]))
        assert not query.answer().table.num_rows
        db.heartbeat("s", START_US + 10)
        with pytest.raises(RowQueryFailed, match="all row queries hold"):
            query.answer()


def test_queries_are_shown_with_the_reason_why_one_has_failed(db):
    db.register("whole", PICKED)
    db.register("sums", "SELECT COUNT(*) AS n FROM s")
    db.execute("CREATE VIEW v AS SELECT id FROM s")
    for name in ("broken", "inserts"):
        into = "INSERT INTO v2 SELECT id, ts FROM s" if name == "inserts" else PICKED
        db.execute("CREATE STREAM IF NOT EXISTS v2 (id BIGINT, ts TIMESTAMP) TIMESTAMP BY ts")
        db.execute(f"CREATE QUERY {name} AS {into}")
        end_by_fault(db, name)
    end_by_fault(db, "v")
    shown = {row["query"]: row["failed"] for row in db.execute("SHOW QUERIES").rows()}
    assert (shown["whole"], shown["sums"]) == (None, None)
    for name in ("broken", "inserts"):
        assert f"query {name!r} failed (ZeroDivisionError)" in shown[name]
    [view] = db.execute("SHOW VIEWS").rows()
    assert "query 'v' failed (ZeroDivisionError)" in view["failed"]


def test_query_that_waits_for_too_many_tuples_fails_and_says_so(tmp_path):
    with Engine.open(tmp_path / "d", row_query_bytes_max=1 << 20) as db:
        db.execute(CREATE.replace("0.00002", "10"))
        query = db.register("q", "SELECT id FROM s")
        for first in range(0, 120_000, 40_000):
            db.push("s", batch([(at, at, 5) for at in range(first, first + 40_000)]))
        with pytest.raises(
            RowQueryFailed, match=r"its state has [\d,]+ bytes, row_query_bytes_max is 1,0"
        ):
            query.answer()
        with pytest.raises(RowQueryFailed):
            next(query.subscribe())
        [shown] = db.execute("SHOW QUERIES").rows()
        assert "row_query_bytes_max is 1,0" in shown["failed"]
        assert db.core.rows.queries["q"].size_bytes < 1 << 20
    with Engine.open(tmp_path / "d", row_query_bytes_max=1 << 20) as db:
        with pytest.raises(RowQueryFailed, match="row_query_bytes_max"):
            db.query("q").answer()
        db.execute("DROP QUERY q")


def test_other_tenants_have_no_use_of_a_row_query(db):
    acme, bolt = Caller("acme"), Caller("bolt")
    db.execute(CREATE.replace(" s ", " a "), caller=acme)
    text = PICKED.replace(" s ", " a ")
    db.register("q", text, caller=acme)
    assert db.query("q", acme).text == text
    with pytest.raises(UnknownQuery):
        db.query("q", bolt)
    with pytest.raises(UnknownStream):
        db.register("r", text, caller=bolt)
    db.execute(CREATE.replace(" s ", " b "), caller=bolt)
    with pytest.raises(QueryExists, match="is taken"):
        db.register("q", text.replace(" a ", " b "), caller=bolt)
    for statement in ("DROP QUERY q", "EXPLAIN q"):
        with pytest.raises(UnknownQuery):
            db.execute(statement, caller=bolt)
    assert db.execute("SHOW QUERIES", caller=bolt).table.num_rows == 0
    assert db.execute("SHOW QUERIES", caller=acme).table.num_rows == 1


def test_end_of_a_row_query_tells_no_names_of_other_tenants(db):
    acme, bolt = Caller("acme"), Caller("bolt")
    for caller, name in ((acme, "a"), (bolt, "b")):
        db.execute(CREATE.replace(" s ", f" {name} "), caller=caller)
    for caller, query, stream in ((acme, "q", "a"), (acme, "beside", "a"), (bolt, "secret", "b")):
        db.register(query, PICKED.replace(" s ", f" {stream} "), caller=caller)
    handle = db.query("q", acme)
    reader = handle.subscribe()
    db.execute("DROP QUERY q", caller=acme)
    for ask in (lambda: next(reader), handle.answer, handle.cursor):
        with pytest.raises(UnknownQuery) as raised:
            ask()
        assert "beside" in str(raised.value)
        assert "secret" not in str(raised.value)


def test_query_that_cannot_be_stored_does_not_stand(tmp_path):
    long = f"SELECT id FROM s WHERE id IN ({', '.join(map(str, range(1_900)))})"
    with reachable(), Engine.open(tmp_path / "d") as db:
        db.execute(CREATE)
        with full_catalog(db), pytest.raises(DiskFull):
            db.register("q", long)
        assert db.execute("SHOW QUERIES").table.num_rows == 0
        query = db.register("q", long)
        push(db, (0, 1, 5))
        db.heartbeat("s", START_US + 1)
        assert ids(query.answer()) == [1]


def test_rows_windows_need_a_stream_that_keeps_all_tuples(db):
    text = "SELECT id FROM {} [PARTITION BY kind ROWS 2]"
    db.execute(CREATE.replace(" s ", " short ") + " RETAIN INTERVAL '1' HOUR")
    with pytest.raises(Unimplemented, match=r"ROWS window .* over short, which has RETAIN"):
        db.register("q", text.format("short"))
    push(db, (0, 1, 5), (1, 2, 5), (2, 3, 5), (3, 4, 6))
    db.heartbeat("s", START_US + 4)
    assert sorted(ids(db.register("q", text.format("s")).answer())) == [2, 3, 4]


def test_older_versions_refuse_a_directory_with_a_row_query(db):
    assert format_of(db.core.store.directory) < FORMAT_ROWS
    db.register("q", PICKED)
    assert format_of(db.core.store.directory) == FORMAT_ROWS


def test_older_versions_refuse_a_directory_with_a_query_of_previous_tuples(db):
    window = "s [PARTITION BY kind ROWS 2]"
    db.register("q", f"SELECT a.id FROM {window} a, {window} b WHERE b = PREV(a)")
    assert format_of(db.core.store.directory) == FORMAT_TABLE_CHANGES


def test_dropped_query_stays_dropped_and_its_name_is_free_after_a_restart(tmp_path):
    reader = Subscriber("q")
    with Engine.open(tmp_path / "d") as db:
        db.execute(CREATE)
        db.register("q", PICKED)
        db.register("kept", PICKED)
        db.core.executor.call(db.checkpoints.now).result()
        db.execute("DROP QUERY q")
    with Engine.open(tmp_path / "d") as db:
        assert [row["query"] for row in db.execute("SHOW QUERIES").rows()] == ["kept"]
        db.register("q", PICKED)
        reader.begin(db)
        push(db, (0, 1, 5))
        db.heartbeat("s", START_US + 1)
        applied(db)
        reader.read(db)
    assert reader.got == [(1, 6, 0, 1)]


@pytest.mark.parametrize("text", [PICKED, "SELECT COUNT(*) AS n FROM s"])
def test_registration_that_takes_too_long_says_what_it_waits_for(db, text):
    push(db, (0, 1, 5))
    applied(db)
    begun, opened = threading.Event(), threading.Event()

    def hold():
        begun.set()
        opened.wait(20)

    db.core.executor.post(hold)
    begun.wait()
    push(db, (1, 2, 5), (2, 3, 5))
    waits = "the records before it, which have 2 rows to go: s is at position 1 of 3"
    try:
        with pytest.raises(
            DeadlineExceeded, match=rf"'q' was not registered within 0.01 s; it waits for {waits}"
        ):
            db.register("q", text, timeout_s=0.01)
        with pytest.raises(DeadlineExceeded):
            db.execute(f"CREATE QUERY q AS {text}", timeout_s=0.01)
    finally:
        opened.set()
    assert db.execute("SHOW QUERIES").table.num_rows == 0
    assert db.register("q", text, timeout_s=60).answer() is not None


def test_registration_waits_for_the_records_before_it_alone(db):
    """The apply thread is given more work than it ends: each piece posts the next one."""
    stopped = threading.Event()

    def more():
        if not stopped.is_set():
            db.core.executor.post(more)

    db.core.executor.post(more)
    try:
        query = db.register("q", PICKED, timeout_s=20)
    finally:
        stopped.set()
    assert query.answer().rows() == []


def test_registration_waits_once_for_the_records_before_it(db):
    """Work that waits for the apply thread stands for records that come during the registration."""
    executor, opened, begun, order = db.core.executor, threading.Event(), threading.Event(), []

    def hold():
        begun.set()
        opened.wait()

    def backlog():
        order.append("backlog")

    def first():
        executor.post(hold)
        executor.post(backlog)

    waits = RegistrationWait(db.core, "q", 20)
    waits.run(first)
    begun.wait()
    thread = threading.Thread(target=waits.run, args=(lambda: order.append("second"),))
    thread.start()
    end_s = time.monotonic() + 20
    while executor.next is backlog and thread.is_alive() and time.monotonic() < end_s:
        thread.join(0.001)
    opened.set()
    thread.join()
    applied(db)
    assert order == ["second", "backlog"]


def test_end_of_a_checkpoint_waits_for_no_backlog(db):
    """Work that waits for the apply thread stands for a backlog of records."""
    push(db, (0, 1, 5))
    executor, opened, begun = db.core.executor, threading.Event(), threading.Event()

    def hold():
        db.checkpoints.go_on(math.inf)
        begun.set()
        opened.wait()

    def backlog():
        pass

    executor.post(hold)
    begun.wait()
    executor.post(backlog)
    thread = threading.Thread(target=db.checkpoints.end_begun)
    thread.start()
    end_s = time.monotonic() + 20
    while executor.next is backlog and time.monotonic() < end_s:
        thread.join(0.001)
    is_before = executor.next is not backlog
    opened.set()
    thread.join()
    assert is_before


def test_late_tuples_before_registration_are_in_windows_applied_or_only_durable(db):
    """Both come 100 us behind the watermark; the second waits for the apply thread."""
    push(db, (0, 1, 5), (500, 2, 5))
    push(db, (380, 3, 5))
    applied(db)
    begun, opened = threading.Event(), threading.Event()

    def hold():
        begun.set()
        opened.wait()

    executor = db.core.executor
    executor.post(hold)
    begun.wait()
    push(db, (381, 4, 5))
    waiting = executor.next
    made = []
    thread = threading.Thread(
        target=lambda: made.append(db.register("q", "SELECT id FROM s [RANGE 1 SECOND]"))
    )
    thread.start()
    opened.set()
    thread.join()
    assert waiting is not None
    db.heartbeat("s", START_US + 501)
    answer = made[0].answer()
    assert sorted(row["id"] for row in answer.rows()) == [1, 2, 3, 4]
    assert (answer.late, answer.complete) == (0, True)
