"""What is predicted of a query that skips tuples, and told as its levels and its stream change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from shedder.engine.allocation.grant_report import percent
from shedder.engine.engine import Engine
from shedder.engine.load_shedding.shedding_units import Costs, units_of
from shedder.engine.window_state.selectivity import Selectivity
from tests.engine.query_worlds import (
    CREATE,
    WINDOW,
    Advanced,
    explained,
    log_registers,
    reallocate,
    second,
)

BY_RANK = f"SELECT MEDIAN(v) AS m FROM s {WINDOW} WITHIN 0.02 RANK"
SELECTIVE = BY_RANK.replace("WITHIN", "WHERE k % 50 = 0 WITHIN")  # One tuple in fifty passes.


@pytest.fixture
def machine() -> Advanced:
    return Advanced()


@pytest.fixture
def db(tmp_path: Path, machine: Advanced) -> Iterator[Engine]:
    with Engine.open(
        tmp_path, machine=machine, checkpoint_seconds=1e6, allocation_seconds=1e6
    ) as engine:
        engine.execute(CREATE)
        yield engine


def test_the_share_that_passes_is_that_of_late_and_never_none() -> None:
    passing = Selectivity()
    assert passing.share == 1.0
    passing.count(9_999, 0)
    assert passing.share == pytest.approx(1e-4)
    for _ in range(100):
        passing.count(100_000, 50_000)
    assert passing.share == pytest.approx(0.5, rel=1e-3)
    for _ in range(40):
        passing.count(100_000, 1_000)
    assert passing.share == pytest.approx(0.01, rel=0.1)


def feed(db: Engine, machine: Advanced, seconds: int = 20, rows: int = 20_000) -> None:
    """So many seconds of the stream at its pace, and looks at what comes of them."""
    for number in range(seconds):
        db.push("s", second(number, rows))
        machine.now_s += 1.0
        reallocate(db)


@pytest.mark.slow
def test_what_skipping_costs_is_of_the_tuples_that_pass(db: Engine, machine: Advanced) -> None:
    db.register("some", f"{SELECTIVE} THINNING 1/8")
    db.register("wider", SELECTIVE.replace("'8'", "'16'") + " THINNING 1/8")  # It takes panes.
    db.register("all", f"{BY_RANK} THINNING 1/8")
    feed(db, machine)
    query_state = db.core.standing_query("wider")[1].state
    assert query_state.feed is not None
    assert query_state.passing_share == db.core.standing_query("some")[1].state.passing_share
    factors = {}
    for name in ("some", "wider", "all"):
        shown = explained(db, name, "KLL")
        assert shown["predicted_error"] == pytest.approx(shown["measured_error"], rel=0.2)
        factors[name] = shown["skipping_factor"]
    assert all(0.5 < factor < 2 for factor in factors.values())  # Of all that come, 7 of some.
    _, units = units_of(db.core.streams.values(), Costs(), {"s": 20_000.0})
    tuples = {unit.query: unit.tuples for unit in units}
    assert tuples["some"] == pytest.approx(tuples["all"] / 50, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aggregate", "synopsis", "times"),
    [
        # sqrt(m / 2), m the mean square of the rows but the largest 0.5 %, over the squared mean.
        ("SUM(1 / (v + 0.001))", "moments", 1.3),
        ("AVG(1 + v / 10)", "moments", 0.02),  # c / sqrt(2); no less than a sixteenth is believed
        ("COUNT(DISTINCT k % 500)", "HLL", 18.0),  # Of 160,000 tuples, but of 500 values.
    ],
)
def test_what_skipping_costs_is_predicted_as_it_was_measured(
    db: Engine, machine: Advanced, aggregate: str, synopsis: str, times: float
) -> None:
    query = db.register(
        "q", f"SELECT {aggregate} AS a FROM s {WINDOW} WITHIN 0.5 PERCENT THINNING 1/8"
    )
    feed(db, machine)
    shown = explained(db, "q", synopsis)
    assert shown["skipping_factor"] == pytest.approx(max(times, 1 / 16), rel=0.3)
    if times > 1 / 16:
        assert shown["predicted_error"] == pytest.approx(shown["measured_error"], rel=0.1)
    assert ("missed" in query.granted) == (times > 1)
    db.execute("ALTER QUERY q SET THINNING 1/32")
    predicted = explained(db, "q", synopsis)["predicted_error"]
    assert predicted == pytest.approx(shown["predicted_error"] * math.sqrt(31 / 7), rel=0.1)
    [row] = query.answer().rows()
    assert row["a_high"] > row["a"]  # What is predicted is in no interval.


@pytest.mark.slow
def test_register_explain_and_allocation_predict_the_same_error(
    db: Engine, machine: Advanced
) -> None:
    """Few values are counted nearly exactly: the factor falls, and the prediction stays."""
    few = f"SELECT COUNT(DISTINCT k % 50) AS d FROM s {WINDOW} WITHIN 2 PERCENT"
    query = db.register("q", few)
    at_first = query.granted["count distinct"]
    assert at_first == "HLL of 2^14 registers, predicted error 1.617%"
    feed(db, machine)
    shown = explained(db, "q", "HLL")
    assert shown["factor"] == 0.5
    size, predicted = query.granted["count distinct"].split(", predicted error ")
    assert size in at_first
    assert predicted == "1.617%; 0.808% expected from measured answers"
    assert percent(shown["predicted_error"]) == "1.617%"
    assert shown["expected_error"] == pytest.approx(shown["predicted_error"] / 2)
    row = next(line for line in str(db.execute("EXPLAIN ALLOCATION")).splitlines() if size in line)
    assert " 1.617 %" in row


@pytest.mark.slow
def test_what_is_granted_follows_levels_and_factors(db: Engine, machine: Advanced) -> None:
    """Not only bytes: a query whose size stays may err by more, and miss what it was granted."""
    query = db.register("q", BY_RANK.replace("0.02", "0.003"))
    log_registers(db)
    db.budgets.set_synopsis_bytes(
        int(query.granted["bytes"])
    )  # It cannot make up for what is skipped.
    feed(db, machine)
    grants = []
    for clause in ("1", "1/64", "1"):
        db.execute(f"ALTER QUERY q SET THINNING {clause}")
        reallocate(db)
        size = query.granted["bytes"]
        error = percent(explained(db, "q", "KLL")["predicted_error"])
        assert f"predicted error {error}" in query.granted["quantile 0.5"]
        grants.append((size, error, "missed" in query.granted))
    assert [missed for _, _, missed in grants] == [False, True, False]
    assert grants[0] == grants[2]
    assert not math.isclose(float(grants[0][1][:-1]), float(grants[1][1][:-1]), rel_tol=0.5)
