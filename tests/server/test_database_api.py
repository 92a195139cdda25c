"""One suite for both: the words of a database in this process and of one on a server."""

import threading

import pyarrow as pa
import pytest

from shedder import errors
from shedder.queries.answers.database_api import Database, QueryHandle
from tests.streams.streams import trades

TEN_SECONDS_US = 10_000_000
COUNTS = "SELECT COUNT(*) AS n FROM trades [RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]"
TOTAL = "SELECT COUNT(*) AS n, SUM(key) AS total FROM trades"


def test_it_is_a_database(database):
    assert isinstance(database, Database)
    assert isinstance(database.register("total", TOTAL), QueryHandle)


@pytest.mark.slow
def test_a_big_table_goes_in_batches_and_comes_out_whole(database):
    parts = [trades(65_536, seed) for seed in range(5)] + [trades(17, 9)]
    table = pa.Table.from_batches(parts)
    receipt = database.push("trades", table, producer="loader")
    assert (receipt.position, receipt.rows) == (table.num_rows, table.num_rows)
    assert database.last_sequence("trades", "loader") == (0, 0)
    row = database.execute(TOTAL).rows()[0]
    assert (row["n"], row["total"]) == (table.num_rows, sum(table["key"].to_pylist()))


def test_nothing_to_push_is_nothing_pushed(database):
    assert database.push("trades", trades(0)).rows == 0
    assert database.ledger("trades").accepted == 0


@pytest.mark.slow
def test_parameters_are_bound(database):
    database.push("trades", trades(100))
    bound = database.execute("SELECT COUNT(*) AS n FROM trades WHERE key < ?", [500]).rows()[0]["n"]
    assert bound == sum(key < 500 for key in trades(100)["key"].to_pylist())


def test_a_standing_query_is_registered_found_invoked_explained_and_dropped(database):
    query = database.register("total", TOTAL)
    assert (query.name, database.query("total").text) == ("total", query.text)
    assert query.granted
    assert query.explain()
    receipt = database.push("trades", trades(10))
    assert query.answer(after=receipt, timeout_s=200).rows()[0]["n"] == 10
    latest = query.latest()
    assert latest is not None
    assert latest.position == 10
    query.drop()
    with pytest.raises(errors.UnknownQuery):
        query.answer()
    with pytest.raises(errors.UnknownQuery):
        database.query("total")


def test_memory_is_shared_out_by_weight_and_explained_to_the_byte(database):
    database.register("q", "SELECT COUNT(DISTINCT key) AS d FROM trades WITHIN 2 PERCENT")
    database.execute("ALTER QUERY q SET WEIGHT 3")
    database.set_control("budget", "synopses", "bytes", "3MiB")
    answer = database.execute("EXPLAIN ALLOCATION")
    table = answer.table
    assert sum(table["size_bytes"].to_pylist()) == 3 << 20
    lines = str(answer).splitlines()
    assert lines[1].startswith("q (weight 3) ")
    assert f"{'all':36} {3 << 20:>12,}" in lines
    controls = {
        (r["entity"], r["name"], r["key"]): r["value"] for r in database.control().to_pylist()
    }
    assert controls["query", "q", "weight"] == "3"
    assert controls["budget", "synopses", "bytes"] == str(3 << 20)
    assert controls["synopsis", "q/1", "weight"] == "3.0"
    database.set_control("query", "q", "active", "false")
    assert database.execute("DESCRIBE q").table.num_rows > 0
    with pytest.raises(errors.BadSetting, match="over 0 and below"):
        database.set_control("budget", "synopses", "bytes", "0")


@pytest.mark.slow
def test_a_query_is_thinned_and_reads_everything_again(database):
    query = database.register("total", TOTAL)
    database.execute("ALTER QUERY total SET THINNING 1/8")
    answer = query.answer(after=database.push("trades", trades(5_000)))
    assert answer.thinning == 1 / 8
    row = answer.rows()[0]
    truth = database.execute(TOTAL).rows()[0]
    assert (row["n"], row["n_bound"]) == (truth["n"], "exact")
    assert row["total_bound"] == "interval"
    [ledger] = database.ledger("trades").queries
    assert ledger.read + ledger.thinned == 5_000
    assert "thinning: 1/8" in query.explain()
    database.execute("ALTER QUERY total SET THINNING 1/1")
    query.answer(after=database.push("trades", trades(5_000)))
    assert database.ledger("trades").queries[0].thinned == ledger.thinned
    with pytest.raises(errors.UnknownQuery):
        database.execute("ALTER QUERY absent SET THINNING 1/2")


def test_parts_of_an_interval_add_up_to_what_the_answer_shows(database):
    query = database.register("total", TOTAL)
    database.execute("ALTER QUERY total SET THINNING 1/8")
    database.push("trades", trades(5_000))
    explained = database.execute("EXPLAIN PRECISION total")
    *parts, whole = (row for row in explained.rows() if row["output"] == "total")
    shown = query.answer().estimate(0, "total")
    assert [part["part"] for part in parts] == ["thinning"]
    assert sum(part["lower"] for part in parts) == shown.value - shown.low > 0
    assert sum(part["upper"] for part in parts) == shown.high - shown.value
    assert (whole["low"], whole["high"], whole["bound"]) == (shown.low, shown.high, "interval")
    assert parts[0]["saved_per_ns"] > 0
    exact = database.execute("EXPLAIN PRECISION SELECT SUM(key) AS s FROM trades").rows()
    assert [(row["part"], row["lower"]) for row in exact] == [("archive", 0.0), ("interval", 0.0)]
    lines = str(explained).splitlines()
    assert lines[0] == "n: 5,000, exact"
    assert any(line.startswith("  thinning ") and line.count(" none") == 2 for line in lines)


def test_a_subscriber_gets_each_slide(database):
    query = database.register("counts", COUNTS)
    slides = query.subscribe()
    database.push("trades", trades(25_000))  # A millisecond apart: two windows and a half.
    database.heartbeat("trades", 3 * TEN_SECONDS_US)
    seen = []
    for answer in slides:
        seen.append((answer.end_us, answer.rows()[0]["n"], answer.missed))
        if answer.end_us == 3 * TEN_SECONDS_US:
            break
    slides.close()
    assert seen[-1][:2] == (3 * TEN_SECONDS_US, 5_000)
    assert sum(1 + missed for _, _, missed in seen) == 3


def test_rows_before_a_bad_batch_are_durable_and_those_after_are_not_sent(database):
    good, bad = trades(100), trades(100).set_column(1, "key", pa.array(["x"] * 100))
    with pytest.raises(errors.SchemaMismatch):
        database.push("trades", iter([good, good, bad, good]), producer="p")
    assert database.ledger("trades").applied == 200


@pytest.mark.slow
def test_many_threads_push_through_one_database_and_nothing_is_lost(database):
    def push(seed):
        for number in range(5):
            database.push("trades", trades(50, seed * 10 + number))

    threads = [threading.Thread(target=push, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = database.ledger("trades")
    assert (ledger.applied, ledger.duplicate) == (2_000, 0)


@pytest.mark.slow
def test_a_replay_is_acknowledged_and_not_applied(database):
    first = database.push("trades", trades(10), producer="p", sequence=0)
    again = database.push("trades", trades(10), producer="p", sequence=0)
    assert (again.position, again.rows, again.duplicate) == (first.position, first.rows, True)
    assert database.execute(TOTAL).rows()[0]["n"] == 10
    ledger = database.ledger("trades")
    assert (ledger.accepted, ledger.applied, ledger.duplicate) == (20, 10, 10)


def test_a_newer_incarnation_takes_over(database):
    database.push("trades", trades(1), producer="p", epoch=1)
    database.push("trades", trades(1), producer="p", epoch=2)
    assert database.last_sequence("trades", "p") == (2, 0)
    with pytest.raises(errors.StaleEpoch):
        database.push("trades", trades(1), producer="p", epoch=1)


@pytest.mark.parametrize("make", [pa.Table.from_batches, lambda b: b, lambda b: b[0].to_pandas()])
def test_frames_and_tables_of_all_kinds_are_taken(database, make):
    assert database.push("trades", make([trades(10)])).position == 10


def test_a_text_registered_twice_is_one_query_and_another_text_is_refused(database):
    assert database.register("q", TOTAL).text == database.register("q", TOTAL).text
    with pytest.raises(errors.QueryExists):
        database.register("q", COUNTS)


@pytest.mark.slow
def test_a_sealed_stream_gives_the_same_answers(database):
    database.push("trades", trades(100))
    before = database.execute(TOTAL).rows()
    database.seal("trades")
    assert database.execute(TOTAL).rows() == before


@pytest.mark.slow
def test_a_producer_keeps_batches_in_flight_and_goes_on_where_it_stopped(database):
    with database.producer("trades", "p", epoch=1) as producer:
        for seed in range(40):
            assert producer.push(trades(10, seed)) == seed + 1
        receipt = producer.flush()
        assert (receipt.position, receipt.rows) == (400, 10)
    resumed = database.producer("trades", "p")
    assert (resumed.epoch, resumed.next_sequence) == (1, 40)
    resumed.push(trades(10, 39), sequence=39)  # It is not sure about this one.
    assert resumed.push(trades(10, 40)) == 41
    assert resumed.flush().position == 410
    with pytest.raises(errors.StaleEpoch):
        database.producer("trades", "p", epoch=0)
    newest = database.producer("trades", "p", epoch=2)
    assert newest.next_sequence == 0
    newest.push(trades(10, 41))
    assert newest.flush().position == 420
    assert database.ledger("trades").applied == 420


def test_two_producers_of_one_name_do_not_swallow_each_others_rows(database):
    one, two = database.producer("trades", "p"), database.producer("trades", "p")
    one.push(trades(10, 1))
    one.flush()
    with pytest.raises(errors.SequenceReused, match="its own name"):
        both(two)


def both(producer):
    """Push and flush: an embedded producer is refused at once, one from afar with its receipt."""
    producer.push(trades(10, 2))
    producer.flush()


@pytest.mark.slow
def test_answers_are_audited_and_say_so_here_and_from_afar(database, engine):
    text = "SELECT SUM(value) AS total, COUNT(DISTINCT key) AS keys FROM trades"
    query = database.register("total", text)
    receipt = database.push("trades", trades(1_000))
    query.answer(after=receipt, timeout_s=200)
    while query.answer().certified is None:  # A server's own audit may be looking at it now.
        engine.audit.look()
    assert query.answer().certified is True
    found = {(r["name"], r["key"]): r["value"] for r in database.control().to_pylist()}
    assert found["total", "certified"] == "1"
    assert float(found["total", "audited_coverage"]) == 1.0
