"""Sets of values compared by standing queries: over windows, groups, late tuples and restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, plan
from shedder.errors import PrecisionUnavailable
from tests.queries.asking import ask

SECOND = 1_000_000
START_US = 1_700_000_000 * SECOND
CREATE = """CREATE STREAM visits (ts TIMESTAMP, client BIGINT, page VARCHAR, paid DOUBLE)
  TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"""
SETS = "(client, paid > 1, paid <= 1)"
SELECT = f"""DISTINCT_BOTH{SETS} AS back, DISTINCT_ONLY{SETS} AS lost, JACCARD{SETS} AS alike
  FROM visits {{window}} {{rest}}"""
SLIDING = "[RANGE INTERVAL '40' SECOND SLIDE INTERVAL '10' SECOND]"


def visits(count: int, seed: int, clients: int = 60_000, first_us: int = START_US) -> pa.Table:
    """A visit every millisecond."""
    rng = np.random.default_rng(seed)
    paid = rng.random(count) * 3
    return pa.table(
        {
            "ts": pa.array(first_us + np.arange(count) * 1000, pa.timestamp("us")),
            "client": pa.array(rng.integers(0, clients, count), mask=rng.random(count) < 0.01),
            "page": rng.choice(["home", "cart", "help"], count, p=[0.7, 0.25, 0.05]),
            "paid": pa.array(paid, mask=rng.random(count) < 0.05),
        }
    )


def sets_of(table: pa.Table) -> tuple[set[int], set[int]]:
    rows = [row for row in table.to_pylist() if None not in (row["client"], row["paid"])]
    left = {row["client"] for row in rows if row["paid"] > 1}
    return left, {row["client"] for row in rows if row["paid"] <= 1}


def check(row: dict, table: pa.Table, bound: str) -> None:
    left, right = sets_of(table)
    truth = {
        "back": len(left & right),
        "lost": len(left - right),
        "alike": len(left & right) / len(left | right) if left | right else None,
    }
    for name, exact in truth.items():
        assert row[f"{name}_bound"] == bound, (name, row)
        if bound == "exact":
            assert row[name] == exact
        else:
            assert row[f"{name}_low"] <= exact <= row[f"{name}_high"], (name, row, exact)


def window(table: pa.Table, start_us: int, end_us: int) -> pa.Table:
    times = np.asarray(table["ts"].cast(pa.int64()))
    return table.filter(pa.array((times >= start_us) & (times < end_us)))


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "bound"), [(3_000, "exact"), (60_000, "interval")])
def test_a_sliding_window_compares_what_is_in_it(tmp_path: Path, clients: int, bound: str) -> None:
    table = visits(80_000, 1, clients)
    with shedder.open(tmp_path, run_rows=20_000) as db:
        db.execute(CREATE)
        # Five nines: of three intervals none misses by chance.
        rest = "CONFIDENCE 99.999 PERCENT"
        query = db.register("sets", f"SELECT {SELECT.format(window=SLIDING, rest=rest)}")
        answer = query.answer(after=db.push("visits", table))
        assert answer.start_us is not None
        assert answer.end_us is not None
        check(answer.rows()[0], window(table, answer.start_us, answer.end_us), bound)
        assert answer.sources == ("theta",)
        assert "theta" in query.explain()
        before = answer.rows()
    with shedder.open(tmp_path) as db:
        assert db.query("sets").answer().rows() == before


@pytest.mark.slow
def test_groups_are_compared_each_by_itself(tmp_path: Path) -> None:
    table = visits(30_000, 2, clients=4_000)
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        select = SELECT.format(window="", rest="GROUP BY page CONFIDENCE 99.999 PERCENT")
        query = db.register("sets", f"SELECT page, {select}")
        rows = query.answer(after=db.push("visits", table)).rows()
        assert len(rows) == 3
        for row in rows:
            mine = table.filter(
                pa.array([page == row["page"] for page in table["page"].to_pylist()])
            )
            check(row, mine, "exact")


@pytest.mark.slow
def test_asked_once_it_is_exact_or_from_the_sample(tmp_path: Path) -> None:
    table = visits(60_000, 3)
    with shedder.open(tmp_path, sample_rows=4_096) as db:
        db.execute(CREATE)
        db.push("visits", table)
        once = f"SELECT {SELECT.format(window='', rest='')}"
        sampled = f"{once} WITHIN 1000000 ABSOLUTE CONFIDENCE 99.999 PERCENT"
        check(db.execute(once).rows()[0], table, "exact")
        wide = db.execute(sampled).rows()[0]
        check(wide, table, "interval")
        db.register("sets", once)  # From now on the sample holds whole values of the column.
        narrow = db.execute(sampled).rows()[0]
        check(narrow, table, "interval")
        assert narrow["back_high"] - narrow["back_low"] < (wide["back_high"] - wide["back_low"]) / 5


@pytest.mark.slow
def test_tuples_that_come_too_late_may_be_of_either_set(tmp_path: Path) -> None:
    table = visits(80_000, 4, clients=2_000)
    late = visits(50, 5, clients=10**9, first_us=START_US + 50 * SECOND)
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        query = db.register("sets", f"SELECT {SELECT.format(window=SLIDING, rest='')}")
        db.push("visits", table)
        answer = query.answer(after=db.push("visits", late))
        assert answer.late == 50
        assert answer.start_us is not None
        assert answer.end_us is not None
        both = pa.concat_tables([table, late.cast(table.schema)])
        row = answer.rows()[0]
        check(row, window(both, answer.start_us, answer.end_us), "interval")
        back, lost = row["back"], row["lost"]
        assert (row["back_low"], row["back_high"]) == (back, back + 50)
        assert (row["lost_low"], row["lost_high"]) == (max(lost - 50, 0), lost + 50)
        assert row["alike_high"] - row["alike_low"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True])
def test_thinned_by_their_hash_sets_stay_comparable(tmp_path: Path, grouped: bool) -> None:
    table, key = visits(90_000, 7, clients=50_000), "page, " if grouped else ""
    rest = f"{'GROUP BY page ' * grouped}CONFIDENCE 99.999 PERCENT"
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        query = db.register("sets", f"SELECT {key}{SELECT.format(window='', rest=rest)}")
        for at, share in enumerate(("1/1", "1/8", "1/4")):  # In full, then an eighth of the values.
            db.execute(f"ALTER QUERY sets SET THINNING {share}")
            receipt = db.push("visits", table.slice(30_000 * at, 30_000))
        answer = query.answer(after=receipt)
        assert answer.thinning == 0.125
        assert len(answer.rows()) == (3 if grouped else 1)
        pages = table["page"].to_pylist()
        for row in answer.rows():
            mine = [not grouped or page == row["page"] for page in pages]
            check(row, table.filter(pa.array(mine)), "interval")
        left, _ = sets_of(table)
        if not grouped:  # One eighth of the values, but at most 4,096: about 3 % each way.
            assert answer.rows()[0]["back_high"] - answer.rows()[0]["back_low"] < len(left) / 4
        before = answer.rows()
    with shedder.open(tmp_path) as db:
        assert db.query("sets").answer().rows() == before


def test_a_target_sizes_the_sketches_and_what_is_impossible_is_refused(tmp_path: Path) -> None:
    with shedder.open(tmp_path) as db:
        db.execute(CREATE)
        text = SELECT.format(window="", rest="WITHIN {} PERCENT ELSE FAIL")
        granted = db.register("fine", f"SELECT {text.format(1)}").granted
        assert granted["jaccard"].startswith("two theta sketches of 2^16 hashes")
        coarse = db.register("coarse", f"SELECT {text.format(10)}").granted
        assert coarse["jaccard"].startswith("two theta sketches of 2^9 hashes")
        with pytest.raises(PrecisionUnavailable, match="no size reaches"):
            db.register("finest", f"SELECT {text.format(0.01)}")


def test_sketches_are_shared_by_the_steps_of_a_funnel() -> None:
    home, cart, help_ = (f"domain = '{page}'" for page in ("home", "cart", "help"))
    query = ask(
        f"DISTINCT_BOTH(client, {home}, {cart}) AS one, DISTINCT_BOTH(client, {cart}, {help_}), "
        f"JACCARD(client, {cart}, {help_}), COUNT(DISTINCT client) FROM requests"
    )
    found = plan(query, {})
    kinds = [part.kind for part in found.parts]
    assert kinds == [
        SynopsisKind.COUNT,
        SynopsisKind.THETA,
        SynopsisKind.THETA,
        SynopsisKind.THETA,
        SynopsisKind.DISTINCT,
    ]
    assert (found.answers, found.partners) == ((1, 2, 2, 4), (2, 3, 3, None))
