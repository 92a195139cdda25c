"""What static approximation decides: windows, levels, refusals; and that it biases nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import RangeWindow, Rewrite
from shedder.engine.estimates.window_estimates import window_evidence
from shedder.engine.registration.query_rewrite import rewritten, without_limits
from shedder.engine.registration.rewrite_report import Rewritten, cost_ns, described, sampled_by
from shedder.engine.registration.smaller_windows import range_is_fixed, windows_of
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, plan
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import BudgetExceeded, PrecisionUnavailable
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions
from shedder.streams.windows import PaneGrid, Span
from synopses.model.profile import CHOOSING_NS
from tests.cql.trees import SCHEMA, bound_query

MINUTE = 60_000_000
CAP = 8 << 20
HOUR = "[RANGE 1 HOUR SLIDE 10 SECONDS]"
MIXED = f"SELECT COUNT(DISTINCT i) AS d, AVG(d) AS ad, MEDIAN(d) AS md FROM stream {HOUR}"


def fitted(text: str, free_bytes: int = 1 << 30) -> Rewritten:
    return rewritten(bound_query(text), free_bytes=free_bytes, group_bytes_max=CAP)


def windowed(text: str) -> BoundQuery:
    return bound_query(f"SELECT {text} FROM stream {HOUR}")


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(1, 400), st.integers(1, 60))
def test_a_smaller_window_has_fewer_panes_and_ends_where_the_asked_one_does(
    length: int, slide: int
) -> None:
    original = replace(windowed("AVG(d)"), window=RangeWindow(length * MINUTE, slide * MINUTE))
    for permitted in (
        (Rewrite.SLIDE,),
        (Rewrite.COLLAPSE,),
        (Rewrite.RANGE,),
        (Rewrite.COLLAPSE, Rewrite.RANGE),
        tuple(Rewrite),
        (),
    ):
        windows = windows_of(original, permitted)
        assert windows[0] == original.window
        panes = [PaneGrid.of(window).panes_live for window in windows]
        assert panes == sorted(set(panes), reverse=True)
        for window in windows[1:]:
            assert isinstance(window, RangeWindow)
            assert window.slide_us % (slide * MINUTE) == 0
            if Rewrite.SLIDE in permitted:
                assert window.range_us == length * MINUTE
                assert window.collapse is None
            elif window.collapse is not None:
                assert Rewrite.COLLAPSE in permitted
                assert (window.range_us, window.slide_us) == (length * MINUTE, slide * MINUTE)
            else:
                assert window.slide_us == slide * MINUTE
                assert window.range_us < length * MINUTE
        if not permitted:
            assert len(windows) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("COUNT(DISTINCT i)", r"COUNT\(DISTINCT i\) eliminates duplicates"),
        ("SUM(d), DISTINCT_BOTH(i, d > 1, d < 2)", "eliminates duplicates"),
        ("DISTINCT_ONLY(i, d > 1, d < 2)", "take values for new that came before"),
        ("JACCARD(i, d > 1, d < 2)", "take values for new that came before"),
    ],
)
def test_a_window_is_not_shortened_under_duplicate_elimination_and_negation(
    text: str, reason: str
) -> None:
    query = windowed(text)
    assert range_is_fixed(query) is not None
    assert windows_of(query, (Rewrite.RANGE,)) == [query.window]
    limited = f"SELECT {text} FROM stream {HOUR} COSTING AT MOST 256 KIB REWRITE RANGE"
    would = "REWRITE SLIDE, RANGE would make it fit: SLIDE"
    with pytest.raises(BudgetExceeded, match=f"RANGE is not shortened: .*{reason}.*{would}"):
        fitted(limited)


def test_having_and_groups_alone_are_the_same_two_cases() -> None:
    nothing_failed = "SELECT s, COUNT(*) FILTER (WHERE b) AS bad FROM stream [RANGE 1 HOUR]"
    assert "let groups pass" in str(
        range_is_fixed(bound_query(f"{nothing_failed} GROUP BY s HAVING bad = 0"))
    )
    assert range_is_fixed(bound_query(f"{nothing_failed} GROUP BY s")) is None
    seen = bound_query("SELECT s FROM stream [RANGE 1 HOUR] GROUP BY s")
    assert "eliminates duplicates" in str(range_is_fixed(seen))


def test_why_a_shorter_window_is_refused_there_holds_in_numbers() -> None:
    """Distinct values per hour grow, and a value that came before is taken for new."""
    keys = np.random.default_rng(1).integers(0, 1_000, 6_000)  # A hundred per minute, one hour.
    by_minute = keys.reshape(60, 100)
    distinct_per_hour = [
        sum(len(np.unique(part)) for part in np.split(by_minute, 60 // minutes))
        for minutes in (60, 10, 1)
    ]
    assert distinct_per_hour == sorted(distinct_per_hour)
    assert distinct_per_hour[-1] > 5 * distinct_per_hour[0]
    now = np.unique(by_minute[-1])
    new = [len(np.setdiff1d(now, by_minute[-1 - before : -1])) for before in (59, 10, 1)]
    assert new == sorted(new)
    assert new[-1] > 5 * max(new[0], 1)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(2, 400))
def test_a_coarser_slide_has_no_more_panes_than_cells_of_its_length(length: int) -> None:
    """And makes answers older by what windows begin earlier: so SLIDE goes before COLLAPSE."""
    original = replace(windowed("AVG(d)"), window=RangeWindow(length * MINUTE, MINUTE))
    for window in windows_of(original, (Rewrite.COLLAPSE,))[1:]:
        assert isinstance(window, RangeWindow)
        coarser = RangeWindow(length * MINUTE, window.resolution_us)
        if length * MINUTE % window.resolution_us == 0:
            assert PaneGrid.of(coarser).panes_live <= PaneGrid.of(window).panes_live


def test_old_panes_are_collapsed_where_the_slide_may_not_change() -> None:
    text = f"SELECT AVG(d) AS a, COUNT(DISTINCT i) AS n FROM stream {HOUR} COSTING AT MOST 512 KIB"
    it = fitted(f"{text} REWRITE COLLAPSE")
    window = it.query.window
    assert isinstance(window, RangeWindow)
    assert (window.range_us, window.slide_us) == (60 * MINUTE, MINUTE // 6)
    assert window.collapse is not None
    assert it.size_bytes <= 512 << 10
    assert it.longer == (window.resolution_us - window.slide_us) / (2 * window.range_us)
    changes = described(bound_query(f"{text} REWRITE COLLAPSE"), it)
    assert changes["rewrite"] == f"COLLAPSE BY {window.collapse.rate} AFTER {window.collapse.depth}"
    assert "begins up to" in changes["rewrite_costs"]
    assert fitted(text).query.window.collapse is None  # type: ignore[union-attr]
    with pytest.raises(BudgetExceeded, match="REWRITE SLIDE would make it fit"):
        fitted(f"{text} REWRITE NEVER")


def test_a_range_is_shortened_only_where_collapsing_is_not_enough() -> None:
    text = f"SELECT MEDIAN(d) AS a FROM stream {HOUR}"
    windows = []
    for kib in (2048, 256, 90):
        it = fitted(f"{text} COSTING AT MOST {kib} KIB REWRITE COLLAPSE, RANGE")
        assert it.size_bytes <= kib << 10
        assert isinstance(it.query.window, RangeWindow)
        windows.append(it.query.window)
    assert windows[0].collapse is not None
    assert windows[-1].range_us < 60 * MINUTE
    assert windows[-1].collapse is None


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kib", [128, 1024, 1 << 20])
@pytest.mark.parametrize("target", ["", "WITHIN 2 PERCENT"])
def test_a_query_keeps_its_limit_of_bytes(kib: int, target: str) -> None:
    it = fitted(f"{MIXED} {target} COSTING AT MOST {kib} KIB")
    assert it.size_bytes <= kib << 10
    window = it.query.window
    assert isinstance(window, RangeWindow)
    assert window.range_us == 60 * MINUTE
    whole = without_limits(it.query, group_bytes_max=CAP)
    assert it.given.sizes[1] <= whole.given.sizes[1]


def test_a_looser_limit_never_loses_more() -> None:
    lost = []
    for kib in (128, 512, 2048, 32_768):  # The last is all that it can use.
        it = fitted(f"{MIXED} COSTING AT MOST {kib} KIB")
        lost.append(it.older + it.error)
    assert all(after <= before * 1.1 for before, after in pairwise(lost))
    assert lost[-1] == without_limits(bound_query(MIXED), group_bytes_max=CAP).error


def test_a_query_that_fits_is_left_as_it_is() -> None:
    it = fitted(f"{MIXED} COSTING AT MOST 1 GIB AND 100 NS")
    original = bound_query(MIXED)
    assert (it.query.window, set(it.levels)) == (original.window, {0})
    assert described(it.query, it) == {}


def test_never_means_never_and_the_refusal_says_what_would_do() -> None:
    with pytest.raises(BudgetExceeded, match=r"262,144 may be used; REWRITE SLIDE would .* SLIDE"):
        fitted(f"{MIXED} COSTING AT MOST 256 KIB REWRITE NEVER")
    grouped = f"SELECT s, MEDIAN(d) AS md FROM stream {HOUR} GROUP BY s"
    with pytest.raises(
        BudgetExceeded, match=r"ns per tuple; 8 may be used; REWRITE THINNING would .* md read 1/"
    ):
        fitted(f"{grouped} COSTING AT MOST 8 NS REWRITE NEVER")


def test_a_promise_is_not_rewritten_away() -> None:
    text = f"SELECT COUNT(DISTINCT i) FROM stream {HOUR} WITHIN 1 PERCENT ELSE"
    with pytest.raises(PrecisionUnavailable, match="it would miss 1 of its targets"):
        fitted(f"{text} FAIL COSTING AT MOST 100 KIB")
    assert fitted(f"{text} WIDEN COSTING AT MOST 100 KIB").missed == 1


def test_a_shorter_range_is_taken_where_only_that_is_permitted() -> None:
    text = f"SELECT AVG(d), MAX(d) FROM stream {HOUR}"
    it = fitted(f"{text} COSTING AT MOST 100 KIB REWRITE RANGE")
    window = it.query.window
    assert isinstance(window, RangeWindow)
    assert window.slide_us == 10_000_000
    assert window.range_us < 60 * MINUTE
    assert it.shorter == pytest.approx(1 - window.range_us / (60 * MINUTE))
    changes = described(bound_query(text), it)
    assert "RANGE INTERVAL" in changes["rewrite"]
    assert f"answers are of {1 - it.shorter:.0%} of the time" in changes["rewrite_costs"]


def test_coarser_slides_lose_less_than_shorter_ranges() -> None:
    text = "SELECT AVG(d), MAX(d) FROM stream [RANGE 1 HOUR SLIDE 10 SECONDS]"
    for kib in (40, 100):
        coarse = fitted(f"{text} COSTING AT MOST {kib} KIB REWRITE SLIDE")
        short = fitted(f"{text} COSTING AT MOST {kib} KIB REWRITE RANGE")
        assert coarse.older < short.shorter


# --- levels ---------------------------------------------------------------------------------------

GROUPED = f"SELECT s, AVG(d), MEDIAN(d), COUNT(*), COUNT(DISTINCT i), TOP(l, 5) FROM stream {HOUR}"


@pytest.mark.parametrize(("limit", "grouped"), [(40, False), (15, False), (40, True), (25, True)])
def test_a_query_keeps_its_limit_of_cpu(limit: float, grouped: bool) -> None:
    text = f"{GROUPED} GROUP BY s" if grouped else GROUPED.replace("s, ", "", 1)
    it = fitted(f"{text} COSTING AT MOST {limit} NS")
    assert it.ns_per_tuple <= limit
    assert it.levels[0] == min(it.levels)
    each = [costs_ns(p, grouped=grouped)[j] for p, j in zip(it.plan.parts, it.levels, strict=True)]
    assert it.ns_per_tuple == pytest.approx(sum(each) + CHOOSING_NS * len(set(it.levels) - {0}))
    with pytest.raises(BudgetExceeded, match=r"at least, however few it reads; 0\.1 may be used"):
        fitted(f"{text} COSTING AT MOST 0.1 NS")


def test_a_sample_that_is_asked_for_is_lowered_never_raised() -> None:
    text = f"SELECT s, MEDIAN(d) AS md FROM stream {HOUR} GROUP BY s THINNING 1/4"
    plenty = fitted(f"{text} COSTING AT MOST 1000 NS")
    assert set(plenty.levels) == {2}
    assert described(plenty.query, plenty) == {}
    grouped = bound_query(text)
    takes = cost_ns(plan(grouped, {}).parts, (2, 2), grouped=True)
    scarce = fitted(f"{text} COSTING AT MOST {takes - 0.4:g} NS")
    assert min(scarce.levels) >= 2
    assert max(scarce.levels) > 2
    assert "md read 1/" in described(scarce.query, scarce)["rewrite"]


def test_samples_are_pushed_down_as_rows_or_as_values() -> None:
    query = windowed("AVG(d), COUNT(DISTINCT i), JACCARD(l, d > 1, d < 2), TOP(s, 3)")
    ways = {part.kind: sampled_by(part) for part in plan(query, {}).parts}
    assert ways == {
        SynopsisKind.COUNT: "rows",
        SynopsisKind.MOMENTS: "rows",
        SynopsisKind.DISTINCT: "values",
        SynopsisKind.THETA: "values",
        SynopsisKind.FREQUENT: "rows",
    }


# --- bias -----------------------------------------------------------------------------------------

TRIALS = 60
ROWS = 3_000
SAMPLED = """SELECT s, COUNT(*) AS n, SUM(d) AS sd, AVG(d) AS ad, COUNT(DISTINCT l) AS dl,
  DISTINCT_ONLY(l, i < 4, i >= 4) AS lost, SELF_JOIN_SIZE(i) AS f2
  FROM stream WHERE d > 0.5 GROUP BY s THINNING 1/8"""


def sampled(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """The estimates of a thinned query about one of two groups, and the truth."""
    rng = np.random.default_rng([7, seed])
    columns = {
        "ts": pa.array(np.arange(ROWS), pa.timestamp("us")),
        "s": np.where(rng.random(ROWS) < 0.8, "a", "b"),
        "d": rng.lognormal(0.5, 0.8, ROWS),
        "i": pa.array(rng.integers(0, 8, ROWS), pa.int32()),
        "l": rng.integers(0, 900, ROWS) * 7_919 + seed * 1_000_003,
    }
    nothing = {
        field.name: pa.nulls(ROWS, field.type)
        for field in (pa.field(c.name, _ARROW[c.type.value]) for c in SCHEMA.columns)
        if field.name not in columns
    }
    batch = pa.record_batch({**nothing, **columns})
    query = bound_query(SAMPLED, replace(SCHEMA, seed=seed))
    kept = plan(query, dict.fromkeys(query.aggregates, 10))
    query_state = QueryState("q", query, kept, part_bytes_max=CAP)
    query_state.set_levels((query.thinning,) * len(kept.parts))
    query_state.apply(
        Frame(batch, "ts", positions=Positions(seed, 0)), watermark_us=None, limit_us=None
    )
    evidence = window_evidence(
        query_state,
        Span(None, None),
        confidences=split_confidence(query, EXACT_IN_PANES),
        watermark_us=None,
        position=ROWS,
    )
    at = evidence.keys[0].to_pylist().index("a")
    names = [item.name for item in query.outputs[1:]]
    estimates = {
        name: float(evidence.estimates[aggregate].value[at])
        for name, aggregate in zip(names, query.aggregates, strict=True)
    }
    table = batch.to_pandas()
    rows = table[(table.s == "a") & (table.d > 0.5)]
    early, late = (set(rows.l[mask]) for mask in (rows.i < 4, rows.i >= 4))
    truth = {
        "n": len(rows),
        "sd": rows.d.sum(),
        "ad": rows.d.mean(),
        "dl": rows.l.nunique(),
        "lost": len(early - late),
        "f2": (rows.i.value_counts() ** 2).sum(),
    }
    naive = len(set(rows.l[rng.random(len(rows)) < 1 / 8])) * 8
    return {**estimates, "naive": naive}, {**truth, "naive": truth["dl"]}


_ARROW = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "TIMESTAMP": pa.timestamp("us"),
    "DATE": pa.date32(),
}


@pytest.mark.slow
def test_samples_that_are_pushed_down_are_not_biased() -> None:
    errors: dict[str, list[float]] = {}
    for seed in range(TRIALS):
        estimates, truth = sampled(seed)
        for name, value in estimates.items():
            errors.setdefault(name, []).append(value / truth[name] - 1)
    bias = {name: np.mean(each) for name, each in errors.items()}
    noise = {name: np.std(each) / np.sqrt(TRIALS) for name, each in errors.items()}
    assert bias.pop("naive") > 10 * noise["naive"]  # Rows below a distinct count: far too many.
    for name, each in bias.items():
        assert abs(each) < 5 * noise[name] + 0.002, (name, each, noise[name])
    assert max(noise[name] for name in bias) < 0.04  # Else it could not see a bias.
