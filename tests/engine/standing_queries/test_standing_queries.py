"""Standing queries against the truth, over windows, groups, late tuples and restarts."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import DeadlineExceeded
from tests.engine.supervised import Recording
from tests.engine.world import CREATE, SECOND, START_US, Truth, between, requests

SELECT_ALL = """SELECT COUNT(*) AS n, COUNT(bytes) AS present, SUM(bytes) AS total,
  AVG(bytes) AS mean, MIN(bytes) AS low, MAX(bytes) AS high, STDDEV(bytes) AS spread,
  SUM(hits) AS hits, MIN(domain) AS first, MAX(domain) AS last,
  COUNT(DISTINCT client) AS clients, QUANTILE(bytes, 0.9) AS p90, MEDIAN(hits) AS middle,
  TOP(client, 3) AS busiest, CORR(bytes, hits) AS along, REGR_SLOPE(bytes, hits) AS slope,
  REGR_INTERCEPT(bytes, hits) AS base,
  COVAR_SAMP(hits, client) AS together, SELF_JOIN_SIZE(domain) AS alike,
  JOIN_SIZE(hits, client) AS joined
FROM requests {window} {rest}"""

SLIDING = "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '20' SECOND]"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with shedder.open(tmp_path / "data", sample_rows=1024, run_rows=4_000) as engine:
        engine.execute(CREATE)
        yield engine


def test_what_nobody_waits_for_any_more_is_not_done(tmp_path: Path) -> None:
    """A client that asked again and again, for a moment each, had all of it done in the end."""
    machine = Recording()
    with Engine.open(tmp_path, machine=machine) as db:
        db.execute(CREATE)
        standing = db.register("all", "SELECT COUNT(*) AS n FROM requests")
        held = threading.Event()
        db.core.executor.post(held.wait)
        before = len(machine.calls)
        for _ in range(3):
            with pytest.raises(DeadlineExceeded):
                standing.answer(timeout_s=0.01)
        cancelled = machine.calls[before:]
        held.set()
        db.core.executor.call(lambda: None).result()
    assert len(cancelled) == 3
    assert all(future.cancelled() for future in cancelled)


def check_row(row: dict, rows: pa.Table) -> None:
    """One row of SELECT_ALL's answer against the rows that it speaks of."""
    values = Truth.of(rows["bytes"].to_pylist())
    hits = Truth.of(rows["hits"].to_pylist())
    clients = Truth.of(rows["client"].to_pylist())
    domains = Truth.of(rows["domain"].to_pylist())
    assert row["n"] == rows.num_rows
    assert row["present"] == len(values.values)
    assert row["hits"] == sum(hits.values)
    assert row["total"] == pytest.approx(math.fsum(values.values), rel=1e-12)
    assert row["mean"] == pytest.approx(np.mean(values.values), rel=1e-12)
    assert row["low"] == min(values.values)
    assert row["high"] == max(values.values)
    assert row["spread"] == pytest.approx(np.std(values.values, ddof=1), rel=1e-9)
    assert (row["first"], row["last"]) == (min(domains.values), max(domains.values))
    assert row["clients_low"] <= len(clients.counts()) <= row["clients_high"]
    assert row["p90_low"] <= values.quantile(0.9) <= row["p90_high"]
    assert row["p90_high"] - row["p90_low"] <= 0.01 * row["p90"]
    assert row["middle_low"] <= hits.quantile(0.5) <= row["middle_high"]
    counts = clients.counts()
    for item in row["busiest"]:
        assert item["low"] <= counts[item["value"]] <= item["high"]
    pairs = pairs_of(rows, "bytes", "hits")
    assert row["along"] == pytest.approx(np.corrcoef(pairs)[0, 1], rel=1e-9, abs=1e-12)
    slope = np.cov(pairs)[0, 1] / np.var(pairs[1], ddof=1)
    assert row["slope"] == pytest.approx(slope, rel=1e-9, abs=1e-12)
    assert row["base"] == pytest.approx(pairs[0].mean() - slope * pairs[1].mean(), rel=1e-9)
    covariance = np.cov(pairs_of(rows, "hits", "client"))[0, 1]
    assert row["together"] == pytest.approx(covariance, rel=1e-9, abs=1e-9)
    domains = Counter(rows["domain"].drop_null().to_pylist())
    assert row["alike"] == sum(n * n for n in domains.values())
    hits, client = (Counter(rows[name].drop_null().to_pylist()) for name in ("hits", "client"))
    assert row["joined"] == sum(n * client[value] for value, n in hits.items())
    best = sorted(counts.values(), reverse=True)[:3]
    assert [item["count"] for item in row["busiest"]] == pytest.approx(best, abs=5)


def pairs_of(rows: pa.Table, first: str, second: str) -> np.ndarray:
    """Values of two columns where both have one: float64 [2, pairs]."""
    columns = [
        rows[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in (first, second)
    ]
    return np.array(columns)[:, ~np.isnan(columns[0]) & ~np.isnan(columns[1])]


@pytest.mark.slow
def test_a_sliding_window_is_answered_as_of_its_last_slide(db: Engine) -> None:
    table = requests(20_000, seed=1)
    query = db.register("all", SELECT_ALL.format(window=SLIDING, rest=""))
    db.push("requests", table)
    answer = query.answer(after=db.push("requests", table.slice(0, 0)))
    newest = int(np.asarray(table["ts"].cast(pa.int64())).max())
    assert answer.end_us == (newest - 2 * SECOND) // (20 * SECOND) * (20 * SECOND)
    assert answer.start_us == answer.end_us - 60 * SECOND
    assert answer.complete
    check_row(answer.rows()[0], between(table, answer.start_us, answer.end_us))


@pytest.mark.slow
def test_every_slide_reaches_a_subscriber_with_the_truth_of_its_window(db: Engine) -> None:
    table = requests(20_000, seed=2, disorder_s=1.0)
    query = db.register("all", SELECT_ALL.format(window=SLIDING, rest=""))
    answers = []
    db.listen("all", answers.append)
    for first in range(0, 20_000, 1_000):
        db.push("requests", table.slice(first, 1_000))
    query.answer(after=db.push("requests", table.slice(0, 0)))
    ends = [answer.end_us for answer in answers]
    assert ends == list(range(START_US + 20 * SECOND, ends[-1] + 1, 20 * SECOND))
    assert ends[-1] >= START_US + 580 * SECOND
    for answer in answers:
        assert answer.late == 0
        check_row(answer.rows()[0], between(table, answer.start_us, answer.end_us))


@pytest.mark.slow
@pytest.mark.parametrize(
    "window", ["", "[RANGE UNBOUNDED]", "[FROM TIMESTAMP '2023-11-14 22:15:00']"]
)
def test_groups_of_a_window_that_does_not_slide(db: Engine, window: str) -> None:
    table = requests(8_000, seed=3)
    select = SELECT_ALL.replace("SELECT", "SELECT domain, ok,", 1)
    query = db.register(
        "groups", select.format(window=window, rest="WHERE hits > 3 GROUP BY domain, ok")
    )
    answer = query.answer(after=db.push("requests", table))
    start = 1_700_000_100 * SECOND if "FROM TIMESTAMP" in window else 0
    wanted = between(table, start, 1 << 62)
    wanted = wanted.filter(pa.compute.greater(wanted["hits"], 3))
    found = set()
    for row in answer.rows():
        key = (row["domain"], row["ok"])
        found.add(key)
        mask = [
            (d, o) == key
            for d, o in zip(*(wanted[c].to_pylist() for c in ("domain", "ok")), strict=True)
        ]
        rows = wanted.filter(pa.array(mask))
        if row["domain"] is not None:
            check_row(row, rows)
        else:
            assert row["n"] == rows.num_rows
    assert found == set(zip(wanted["domain"].to_pylist(), wanted["ok"].to_pylist(), strict=True))


def test_a_snapshot_behind_a_filter_reads_what_it_should(db: Engine) -> None:
    table = requests(4_000, seed=8)
    window = "[FROM TIMESTAMP '2023-11-14 22:15:00' TO TIMESTAMP '2023-11-14 22:16:00']"
    query = db.register("n", f"SELECT COUNT(*) AS n FROM requests {window} WHERE hits > 3")
    answer = query.answer(after=db.push("requests", table))
    wanted = between(table, 1_700_000_100 * SECOND, 1_700_000_160 * SECOND)
    assert answer.rows()[0]["n"] == sum(hits > 3 for hits in wanted["hits"].to_pylist())


def test_late_tuples_widen_the_windows_they_belong_to_and_are_counted(db: Engine) -> None:
    table = requests(10_000, seed=4)
    query = db.register("n", f"SELECT COUNT(*) AS n, SUM(bytes) AS s FROM requests {SLIDING}")
    answers = []
    db.listen("n", answers.append)
    db.push("requests", table.slice(0, 9_000))
    late = table.slice(8_000, 50)
    db.push("requests", late)
    db.push("requests", table.slice(9_000, 1_000))
    query.answer(after=db.push("requests", table.slice(0, 0)))
    ledger = db.ledger("requests")
    assert ledger.accepted == ledger.applied == 10_050
    assert ledger.queries[0].read + ledger.queries[0].late == 10_050
    assert ledger.queries[0].late > 0
    everything = pa.concat_tables([table, late])
    widened = [answer for answer in answers if answer.late]
    assert widened
    for answer in answers:
        truth = between(everything, answer.start_us, answer.end_us)
        row = answer.rows()[0]
        if answer.late:
            assert row["n_low"] <= truth.num_rows <= row["n_high"]
            assert row["n_bound"] == "interval"


def test_a_query_over_a_stream_with_history_begins_with_the_history(db: Engine) -> None:
    table = requests(12_000, seed=5)
    db.push("requests", table.slice(0, 9_000))
    query = db.register("all", SELECT_ALL.format(window=SLIDING, rest=""))
    answer = query.answer()
    check_row(answer.rows()[0], between(table.slice(0, 9_000), answer.start_us, answer.end_us))
    whole = db.register("whole", SELECT_ALL.format(window="", rest=""))
    check_row(whole.answer().rows()[0], table.slice(0, 9_000))
    receipt = db.push("requests", table.slice(9_000))
    check_row(whole.answer(after=receipt).rows()[0], table)
    answer = query.answer(after=receipt)
    check_row(answer.rows()[0], between(table, answer.start_us, answer.end_us))


@pytest.mark.slow
def test_a_restart_gives_the_same_answers_as_no_restart(tmp_path: Path) -> None:
    table = requests(15_000, seed=6)
    texts = {
        "sliding": SELECT_ALL.format(window=SLIDING, rest=""),
        "grouped": "SELECT domain, COUNT(*) AS n, COUNT(DISTINCT client) AS c, "
        f"QUANTILE(bytes, 0.5) AS m FROM requests {SLIDING} GROUP BY domain",
        "whole": SELECT_ALL.format(window="", rest=""),
    }
    answers = {}
    for restarts in (0, 3):
        directory = tmp_path / str(restarts)
        db = shedder.open(directory, sample_rows=512, run_rows=4_000)
        db.execute(CREATE)
        for name, text in texts.items():
            db.register(name, text)
        for number in range(5):
            db.push("requests", table.slice(number * 3_000, 3_000))
            if number < restarts:
                db.close()
                db = shedder.open(directory, sample_rows=512, run_rows=4_000)
        for name in texts:
            receipt = db.push("requests", table.slice(0, 0))
            got = db.query(name).answer(after=receipt)
            rows = sorted(got.rows(), key=lambda row: str(row.get("domain")))
            answers.setdefault(name, []).append((got.start_us, got.end_us, rows))
        db.close()
    for name, (without, with_restarts) in answers.items():
        assert without == with_restarts, name


def test_an_ungrouped_query_over_nothing_has_one_row(db: Engine) -> None:
    query = db.register("n", f"SELECT COUNT(*) AS n, SUM(bytes) AS s FROM requests {SLIDING}")
    assert query.answer().rows()[0]["n"] == 0
    assert query.answer().rows()[0]["s"] is None


@pytest.mark.slow
def test_a_group_explosion_is_held_by_the_cap_and_the_rest_is_accounted_for(tmp_path: Path) -> None:
    table = requests(30_000, seed=7)
    keys = pa.array(np.arange(30_000))
    table = table.set_column(1, "client", keys)
    with shedder.open(tmp_path / "data", group_bytes_max=64 << 10) as db:
        db.execute(CREATE)
        query = db.register(
            "g", "SELECT client, COUNT(*) AS n, AVG(bytes) AS m FROM requests GROUP BY client"
        )
        receipt = None
        for first in range(0, 30_000, 1_000):
            receipt = db.push("requests", table.slice(first, 1_000))
        answer = query.answer(after=receipt)
        assert answer.others is not None
        assert answer.table.num_rows < 10_000
        assert sum(answer.table["n"].to_pylist()) == 30_000
        assert answer.missing is not None
        # One group may have all of them; a larger one cannot be.
        assert answer.missing.weight_max == answer.table["n"][answer.others].as_py() + 1


def test_the_top_of_a_sliding_window_is_known_though_its_favourites_change(db: Engine) -> None:
    """Forty values take turns at the head of a long tail; no pane's table holds the whole tail."""
    rng = np.random.default_rng(9)
    rows = 60_000
    table = requests(rows, seed=9, seconds=60.0)
    tail = np.arange(rows) % 20_000 + 1_000
    turn = (np.arange(rows) // 1_000 + rng.integers(0, 5, rows)) % 40
    client = np.where(rng.random(rows) < 0.25, turn, tail)
    table = table.set_column(1, "client", pa.array(client, pa.int64()))
    query = db.register("top", f"SELECT TOP(client, 5) AS top FROM requests {SLIDING}")
    for start in range(0, rows, 5_000):
        receipt = db.push("requests", table.slice(start, 5_000))
    answer = query.answer(after=receipt)
    counts = Truth.of(between(table, answer.start_us, answer.end_us)["client"].to_pylist()).counts()
    found = answer.rows()[0]["top"]
    for item in found:
        assert item["low"] <= counts[item["value"]] <= item["high"]
        assert item["high"] - item["low"] <= 0.1 * item["count"]
