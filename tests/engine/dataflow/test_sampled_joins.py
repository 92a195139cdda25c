"""Standing aggregates of joins in bounded bytes: SQL, answers, EXPLAIN, restarts and kills."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.files.data_directory import (
    FORMAT_FOREIGN_KEYS,
    FORMAT_SAMPLED_JOINS,
    format_of,
)
from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from shedder.engine.dataflow.join_sizes import RESIZES_MAX, JoinSampling
from shedder.engine.engine import Engine
from shedder.errors import (
    BadQuery,
    BadSetting,
    BudgetExceeded,
    RowQueryFailed,
    Unimplemented,
    UnknownQuery,
)
from tests.engine.killed import copy_killed
from tests.engine.world import START_US
from tests.seeds import seed
from tests.server_process import ServerProcess

pytestmark = pytest.mark.slow

SLIDE_US = 10_000_000
WINDOW = "[RANGE 40 SECONDS SLIDE 10 SECONDS]"
SLIDES = 4  # Of a window.
JOIN = f"SELECT COUNT(*) AS n FROM a {WINDOW} JOIN b {WINDOW} ON a.k = b.k"
# The seed of the keys is secret, and answers with the same keys miss together. So the coverage of
# 95 % is tested with seeds (tests/synopses/joins/), and here no interval may miss.
CONFIDENCE = 0.999999
TEXT = f"{JOIN} CONFIDENCE 99.9999 PERCENT"
SUMS = TEXT.replace("COUNT(*) AS n", "SUM(a.v) AS s, AVG(a.v) AS m")
GROUPS = (
    f"SELECT b.k AS k, COUNT(*) AS n, SUM(a.v) AS s FROM a {WINDOW} JOIN b {WINDOW} ON a.k = b.k "
    "GROUP BY b.k CONFIDENCE 99.9999 PERCENT"
)
KEYS = 60_000
ROWS = 12_000  # Of a slide and stream.
LIMIT = 1 << 20
SETTINGS = {"row_query_bytes_max": LIMIT, "checkpoint_seconds": 0.1, "run_rows": 20_000}


EXCEPT = f"SELECT k, v, ts FROM a {WINDOW} EXCEPT SELECT k, v, ts FROM b {WINDOW}"
LABELS = GROUPS.replace("b.k AS k,", "a.k % 7 AS g,").replace("GROUP BY b.k", "GROUP BY a.k % 7")
QUERIES = {"size": TEXT, "sums": SUMS, "groups": GROUPS, "labels": LABELS}


# The rows of groups are held, too, and the tuples of a slide: 1.7 MiB beside the panes.
MORE = SETTINGS | {"row_query_bytes_max": 3 * LIMIT}


class Streams:
    """Slides of both streams, and the exact size of the join of the newest windows."""

    def __init__(self, name: str) -> None:
        self._rng = np.random.default_rng(seed("sampled join queries", name))
        self._counts: list[tuple[np.ndarray, ...]] = []  # Rows of a and b, and sums of a.v.

    def slide(self) -> Iterator[tuple[str, pa.Table]]:
        """Tuples of the next slide, in two batches of each stream."""
        begin_us = START_US - START_US % SLIDE_US + len(self._counts) * SLIDE_US
        found = []
        for name in "ab":
            keys = self._rng.zipf(1.3, ROWS) % KEYS
            values = self._rng.integers(-20, 100, ROWS) + keys % 11
            found.append(np.bincount(keys, minlength=KEYS))
            if name == "a":
                sums = np.bincount(keys, values, minlength=KEYS).astype(np.int64)
            ts = np.sort(self._rng.integers(begin_us, begin_us + SLIDE_US, ROWS))
            table = pa.table({"ts": pa.array(ts, pa.timestamp("us")), "k": keys, "v": values})
            yield name, table.slice(0, ROWS // 3)
            yield name, table.slice(ROWS // 3)
        self._counts.append((*found, sums))

    @property
    def end_us(self) -> int:
        """The instant behind the newest slide."""
        return START_US - START_US % SLIDE_US + len(self._counts) * SLIDE_US

    @property
    def size(self) -> int:
        """Pairs of the windows as of that instant."""
        return int(self._of_keys(0).sum())

    @property
    def sum(self) -> int:
        """Sum of a.v over these pairs."""
        return int(self._of_keys(2).sum())

    def groups(self) -> dict[int, tuple[int, int]]:
        """Pairs and sum of a.v by key."""
        pairs, sums = self._of_keys(0), self._of_keys(2)
        return {int(key): (int(pairs[key]), int(sums[key])) for key in np.flatnonzero(pairs)}

    def _of_keys(self, what: int) -> np.ndarray:
        ours, theirs = (sum(each[at] for each in self._counts[-SLIDES:]) for at in (what, 1))
        return ours * theirs


def create(db) -> None:
    for name in "ab":
        db.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts")


def by_key(table: pa.Table) -> list[tuple]:
    """The rows in an order of their own."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def push(db, streams: Streams, slides: int = 1) -> None:
    for _ in range(slides):
        for name, table in streams.slide():
            db.push(name, table)
    for name in "ab":
        db.heartbeat(name, streams.end_us)


def test_a_join_beyond_its_bytes_has_an_interval_in_place_of_an_error(tmp_path):
    streams = Streams("limit")
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        exact = db.register("exact", JOIN)
        db.execute(f"CREATE QUERY size AS {TEXT}")
        size, sums = db.query("size"), db.register("sums", SUMS)
        held = list[bool]()
        for _ in range(8):
            push(db, streams)
            answer = size.answer()
            found = answer.estimate(0, "n")
            total = sums.answer()
            held += [found.holds(streams.size), total.estimate(0, "s").holds(streams.sum)]
            held.append(total.estimate(0, "m").holds(streams.sum / streams.size))
        assert held == [True] * 24
        assert (answer.confidence, answer.outputs, answer.approximate) == (
            CONFIDENCE,
            ("n",),
            ("n",),
        )
        [row] = answer.rows()
        assert list(row) == ["n", "n_low", "n_high", "n_bound", "n_met"]
        assert (row["n_bound"], row["n_met"]) == ("interval", None)
        assert found.half_width < 0.2 * found.value
        assert answer.complete
        with pytest.raises(RowQueryFailed, match="query 'exact' failed"):
            exact.answer()
        assert format_of(db.core.store.directory) == FORMAT_SAMPLED_JOINS
        shown = db.execute("EXPLAIN size").table
        text = " ".join(" ".join(map(str, row.values())) for row in shown.to_pylist())
        assert f"in at most {LIMIT // 2:,}" in text
        assert "keys sampled: 1/" in text
        assert db.core.rows.queries["size"].state_bytes < LIMIT


def _held_by_others(rows: list[dict], shown_text: str, truth: dict) -> list[bool]:
    """Assert what is certain of groups, and return which intervals of the others hold."""
    shown = {row["k"]: row for row in rows if row["k"] is not None}
    [others] = [row for row in rows if row["k"] is None]
    assert len(shown) == len(rows) - 1 > 50
    for key, row in shown.items():
        for name, each in zip("ns", truth[key], strict=True):
            assert row[f"{name}_low"] <= each <= row[f"{name}_high"]
    assert sum(row["n_bound"] == "exact" for row in shown.values()) > 50
    hidden = [truth[key] for key in truth.keys() - shown.keys()]
    pairs, total = sum(each[0] for each in hidden), sum(each[1] for each in hidden)
    found = re.search(r"keys without a row: ([\d,]+) to ([\d,]+)", shown_text)
    low, high = (int(each.replace(",", "")) for each in found.groups())
    return [
        others["n_low"] <= pairs <= others["n_high"],
        others["s_low"] <= total <= others["s_high"],
        low <= len(hidden) <= high,
    ]


def test_groups_by_key_are_shown_or_counted_together(tmp_path, capfd):
    streams = Streams("groups")
    held = []
    with Engine.open(tmp_path / "d", **MORE) as db:
        create(db)
        groups = db.register("groups", GROUPS)
        for _ in range(5):
            push(db, streams)
            rows = groups.answer().rows()
            shown_text = str(db.execute("EXPLAIN groups").table.to_pylist())
            held += _held_by_others(rows, shown_text, streams.groups())
        assert all(held)
        assert groups.answer().approximate == ("n", "s")
    capfd.readouterr()
    assert run(["sql", "-d", str(tmp_path / "d"), "--query", "groups"]) == ExitCode.FINE
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert sorted(map(str, printed)) == sorted(map(str, rows))


def test_a_restart_and_a_kill_give_the_same_answers_and_rows(tmp_path):
    streams = Streams("restart")
    with Engine.open(tmp_path / "d", **MORE) as db:
        create(db)
        push(db, streams, 3)  # A new query reads the past of its windows.
        for name, text in QUERIES.items():
            db.register(name, text)
        push(db, streams, 4)
        for name, table in list(streams.slide())[:3]:  # A part of a slide.
            db.push(name, table)
        before = {name: db.query(name).answer() for name in QUERIES}
        copied = copy_killed(db, tmp_path / "killed")
    with Engine.open(tmp_path / "d", **MORE) as db, Engine.open(copied, **MORE) as other:
        for name, answer in before.items():
            for each in (db, other):
                found = each.query(name).answer()
                assert by_key(found.table) == by_key(answer.table)
                assert found.resume == answer.resume
        later = list(streams.slide())
        for each in (db, other):
            for name, table in later:
                each.push(name, table)
            for name in "ab":
                each.heartbeat(name, streams.end_us)
        for name, answer in before.items():
            ours, theirs = (each.query(name).answer() for each in (db, other))
            assert by_key(ours.table) == by_key(theirs.table) != by_key(answer.table)
            assert ours.resume == theirs.resume


def _resized(db, streams: Streams, sizes: dict[str, int]) -> list[bool]:
    """Change the bytes of queries within a slide, and look at them behind each of three.

    Returns:
      which of the intervals of the last two queries hold.
    """
    held, parts = [], list(streams.slide())
    for name, table in parts[:3]:
        db.push(name, table)
    for name, size in sizes.items():
        db.execute(f"ALTER QUERY {name} SET BYTES {size} BYTES")
        assert db.core.rows.queries[name].sampled_join.size_bytes <= size
        facts = db.control("query", name).to_pylist()
        assert {"entity": "query", "name": name, "key": "bytes", "value": str(size)} in facts
    db.push(*parts[3])
    for slides in (0, 1, 1):
        push(db, streams, slides)
        held.append(db.query("size").answer().estimate(0, "n").holds(streams.size))
        held.append(db.query("sums").answer().estimate(0, "s").holds(streams.sum))
        for name, size in sizes.items():
            assert db.core.rows.queries[name].sampled_join.size_bytes <= size
    return held


def test_bytes_change_while_a_query_runs_and_a_restart_and_a_kill_keep_the_rows(tmp_path):
    streams = Streams("resizes")
    with Engine.open(tmp_path / "d", **MORE) as db:
        create(db)
        for name, text in QUERIES.items():
            db.register(name, text)
        push(db, streams, 3)
        assert format_of(db.core.store.directory) == FORMAT_SAMPLED_JOINS
        held = _resized(db, streams, {"size": LIMIT // 8, "sums": LIMIT // 2, "groups": LIMIT // 2})
        narrow = db.query("size").answer().estimate(0, "n").half_width
        held += _resized(db, streams, {"size": LIMIT, "sums": LIMIT // 3, "groups": LIMIT})
        push(db, streams, SLIDES - 2)
        assert all(held)
        assert db.query("size").answer().estimate(0, "n").half_width < narrow / 2
        assert format_of(db.core.store.directory) == FORMAT_FOREIGN_KEYS
        for name, table in list(streams.slide())[:3]:
            db.push(name, table)
        db.set_control("query", "size", "bytes", "256KiB")
        before = {name: db.query(name).answer() for name in QUERIES}
        copied = copy_killed(db, tmp_path / "killed")
    with Engine.open(tmp_path / "d", **MORE) as db, Engine.open(copied, **MORE) as other:
        for name, answer in before.items():
            for each in (db, other):
                found = each.query(name).answer()
                assert by_key(found.table) == by_key(answer.table)
                assert found.resume == answer.resume
        assert db.core.rows.queries["size"].sampled_join.bytes_max == 1 << 18
        later = [each for _ in range(2) for each in streams.slide()]
        for each in (db, other):
            for name, table in later:
                each.push(name, table)
        for name in QUERIES:
            ours, theirs = (each.query(name).answer() for each in (db, other))
            assert by_key(ours.table) == by_key(theirs.table)
            assert ours.resume == theirs.resume


def test_a_query_above_its_limit_holds_fewer_bytes_and_goes_on(tmp_path):
    streams = Streams("relief")
    with Engine.open(tmp_path / "d", **SETTINGS | {"row_query_bytes_max": 8 * LIMIT}) as db:
        create(db)
        sums = db.register("sums", SUMS)
        push(db, streams, 4)
        answer = sums.answer()
        assert db.core.rows.queries["sums"].state_bytes > LIMIT
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        sums = db.query("sums")
        assert by_key(sums.answer().table) == by_key(answer.table)
        push(db, streams, 2)
        assert db.core.rows.queries["sums"].state_bytes <= LIMIT
        found = sums.answer().estimate(0, "s")
        assert found.half_width > 0
        assert found.holds(streams.sum)


def test_a_join_holds_fewer_bytes_before_an_exact_query_fails(tmp_path):
    streams = Streams("together")
    with Engine.open(tmp_path / "d", **SETTINGS | {"row_query_bytes_max": 64 << 20}) as db:
        create(db)
        db.register("exact", f"SELECT k, v, ts FROM a {WINDOW}")
        db.register("sums", SUMS)
        db.execute("ALTER QUERY sums SET BYTES 2 MIB")
        push(db, streams, SLIDES)
        rows = db.core.rows
        exact, sums = rows.queries["exact"], rows.queries["sums"]
        assert exact.size_bytes > sums.size_bytes
        held = sums.sampled_join.size_bytes
        rows.limits = replace(rows.limits, all_bytes_max=rows.size_bytes - held // 8)
        ts = pa.array([streams.end_us], pa.timestamp("us"))
        db.push("a", pa.table({"ts": ts, "k": [1], "v": [1]}))
        assert db.query("sums").answer().estimate(0, "s").holds(streams.sum)
        assert db.query("exact").answer().table.num_rows == SLIDES * ROWS
        assert sums.sampled_join.size_bytes < held
        assert rows.size_bytes <= rows.limits.all_bytes_max
        assert not exact.failed
        assert not sums.failed


def test_the_limit_of_row_queries_changes_while_they_run(tmp_path):
    streams = Streams("limits")
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        db.register("exact", JOIN)
        db.register("many", EXCEPT)
        db.register("shed", f"SELECT DISTINCT k, v, ts FROM a {WINDOW} ON OVERLOAD SHED")
        db.register("sums", SUMS)
        db.set_control("budget", "row_query", "bytes", "64MiB")
        db.execute("ALTER QUERY sums SET BYTES 4 MIB")
        push(db, streams, 6)
        assert db.core.rows.queries["sums"].state_bytes > LIMIT
        copied = copy_killed(db, tmp_path / "killed")
    for directory in (tmp_path / "d", copied):
        with Engine.open(directory, **SETTINGS) as db:
            assert db.query("exact").answer().rows() == [{"n": streams.size}]
            assert db.query("many").answer().table.num_rows > 40_000
            assert db.query("sums").answer().estimate(0, "s").holds(streams.sum)
            facts = db.control("budget", "row_query").to_pylist()
            assert [each["value"] for each in facts if each["key"] == "bytes"] == [str(64 << 20)]
            assert db.query("shed").answer().completeness.share == 1.0
            db.set_control("budget", "row_query", "bytes", "8MiB")
            assert db.query("shed").answer().completeness.share < 1.0
            db.set_control("budget", "row_query", "bytes", "default")
            assert db.core.row_query_bytes == LIMIT
            assert db.core.rows.queries["sums"].state_bytes <= LIMIT
            with pytest.raises(RowQueryFailed, match=r"'exact' failed .* row_query_bytes_max is"):
                db.query("exact").answer()
            assert db.query("sums").answer().estimate(0, "s").holds(streams.sum)
            for value in ("1023KiB", "0"):
                with pytest.raises(BadSetting, match=r"limit of a row query is .* from 1,048,576"):
                    db.set_control("budget", "row_query", "bytes", value)


def test_a_query_whose_waiting_tuples_exceed_a_new_limit_fails(tmp_path):
    """More bytes are too many than its panes have."""
    keys = np.random.default_rng(seed("waiting")).integers(0, 1 << 60, 200_000)
    ts = pa.array(np.full(len(keys), START_US), pa.timestamp("us"))
    with Engine.open(tmp_path / "d", **SETTINGS | {"row_query_bytes_max": 8 * LIMIT}) as db:
        create(db)
        size = db.register("size", TEXT)
        db.push("a", pa.table({"ts": ts, "k": keys, "v": keys}))  # They wait for those of b.
        size.answer()  # Of all that is durable.
        query = db.core.rows.queries["size"]
        assert query.state_bytes - query.sampled_join.size_bytes > LIMIT
        db.set_control("budget", "row_query", "bytes", "1MiB")
        with pytest.raises(RowQueryFailed, match=r"'size' failed .* row_query_bytes_max is 1,048,"):
            size.answer()


def test_a_limit_that_batches_before_its_record_had_is_in_force_in_a_replay(tmp_path):
    streams, free = Streams("replayed limit"), threading.Event()
    with Engine.open(tmp_path / "d", **SETTINGS | {"checkpoint_seconds": 1e6}) as db:
        create(db)
        db.register("exact", JOIN)
        db.core.executor.post(free.wait)
        for name, table in (each for _ in range(5) for each in streams.slide()):
            db.push(name, table)  # Durable, and not applied.
        limits = threading.Thread(target=db.budgets.set_row_query_bytes, args=(64 << 20,))
        limits.start()
        while db.core.row_query_bytes_set is None:
            limits.join(0.01)
        free.set()
        limits.join()
        push(db, streams, 0)
        assert db.query("exact").answer().rows() == [{"n": streams.size}]
        copied = copy_killed(db, tmp_path / "killed")
    with Engine.open(copied, **SETTINGS) as db:
        assert db.query("exact").answer().rows() == [{"n": streams.size}]


def test_changed_bytes_are_held_behind_a_restart_before_the_next_tuple(tmp_path):
    streams, size = Streams("restarted"), LIMIT // 2
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        db.register("size", TEXT)
    for slides in range(3):
        with Engine.open(tmp_path / "d", **SETTINGS) as db:
            push(db, streams, slides)
            size -= 64 << 10
            db.execute(f"ALTER QUERY size SET BYTES {size} BYTES")
            held = db.core.rows.queries["size"].sampled_join.size_bytes
        with Engine.open(tmp_path / "d", **SETTINGS) as db:
            assert db.core.rows.queries["size"].sampled_join.size_bytes == held <= size
            facts = {row["key"]: row["value"] for row in db.execute("DESCRIBE size").rows()}
            assert facts["bytes"] == str(size)


def test_the_same_bytes_are_no_change(tmp_path):
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        db.register("size", TEXT)
        for _ in range(RESIZES_MAX + 1):
            db.execute("ALTER QUERY size SET BYTES 256 KIB")
        for at in range(RESIZES_MAX - 1):
            db.execute(f"ALTER QUERY size SET BYTES {200_000 + at} BYTES")
        with pytest.raises(BudgetExceeded, match="changed 64 times"):
            db.execute("ALTER QUERY size SET BYTES 256 KIB")


def test_changes_of_bytes_are_stored_as_long_as_a_restart_needs_them():
    sizes = JoinSampling(7, 1_000)
    assert JoinSampling.from_json(sizes.to_json()) == sizes
    for at in range(RESIZES_MAX):
        sizes = sizes.with_resize(at, at, from_us=None)
    assert JoinSampling.from_json(json.loads(json.dumps(sizes.to_json()))) == sizes
    assert sizes.with_resize(99, 99, from_us=None) is None
    assert sizes.with_resize(99, 99, from_us=0) is None
    kept = sizes.with_resize(99, 99, from_us=3).resizes
    assert kept == (*((at, at) for at in range(3, RESIZES_MAX)), (99, 99))


def test_bytes_that_cannot_be_are_refused(tmp_path):
    with Engine.open(tmp_path / "d", **SETTINGS) as db:
        create(db)
        size = db.register("size", TEXT)
        db.register("exact", JOIN)
        with pytest.raises(BadSetting, match=r"bytes of 'size' are 524289; .* at most 524,288"):
            db.set_control("query", "size", "bytes", str(LIMIT // 2 + 1))
        for value in ("many", "default"):
            with pytest.raises(BadSetting, match=rf"bytes of 'size' '{value}': "):
                db.set_control("query", "size", "bytes", value)
        with pytest.raises(BudgetExceeded, match=r"10 panes.* need 131,072 bytes, .* has 1,024"):
            db.execute("ALTER QUERY size SET BYTES 1 KIB")
        with pytest.raises(BadSetting, match="'exact' has no bytes of its own; a join with CONF"):
            db.execute("ALTER QUERY exact SET BYTES 1 MIB")
        with pytest.raises(UnknownQuery):
            db.execute("ALTER QUERY other SET BYTES 1 MIB")
        assert "in at most 524,288" in size.explain()
        db.core.rows.queries["size"].fail("query 'size' failed (a reason)")
        with pytest.raises(RowQueryFailed, match=r"query 'size' failed \(a reason\)"):
            db.execute("ALTER QUERY size SET BYTES 1 MIB")


@pytest.mark.timeout(300)
def test_a_killed_server_gives_the_same_answer(tmp_path):
    streams = Streams("server")
    settings = {name: str(value) for name, value in MORE.items()}
    service = ServerProcess(tmp_path / "data", **settings)
    try:
        with service.connect() as client:
            create(client)
            for name, text in QUERIES.items():
                client.execute(f"CREATE QUERY {name} AS {text}")
            push(client, streams, 6)
            before = {name: client.query(name).answer() for name in QUERIES}
        service.stop(signal.SIGKILL)
        service.start_again()
        with service.connect() as client:
            after = {name: client.query(name).answer() for name in QUERIES}
            for name, answer in after.items():
                assert by_key(answer.table) == by_key(before[name].table)
                assert (answer.resume, answer.confidence) == (before[name].resume, CONFIDENCE)
            assert after["size"].estimate(0, "n").holds(streams.size)
            assert after["sums"].estimate(0, "s").holds(streams.sum)
            push(client, streams)
            assert client.query("size").answer().estimate(0, "n").value > 0
    finally:
        service.stop(signal.SIGKILL)


def test_where_confidence_has_no_meaning_it_is_refused(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        create(db)
        with pytest.raises(BadQuery, match="a query that is answered once are exact"):
            db.execute(TEXT)
        with pytest.raises(Unimplemented, match="CONFIDENCE in a query whose rows become a stream"):
            db.execute(f"CREATE VIEW v AS {TEXT}")
        with pytest.raises(BadQuery, match="WITHIN: the rows of this query are exact"):
            db.register("size", f"{JOIN} WITHIN 1 PERCENT CONFIDENCE 95 PERCENT")
        preview = db.execute(f"EXPLAIN CREATE QUERY size AS {TEXT}").table.to_pylist()
        assert "keys sampled: all" in str(preview)
        assert format_of(db.core.store.directory) < FORMAT_SAMPLED_JOINS
        assert db.execute("SHOW QUERIES").table.num_rows == 0
