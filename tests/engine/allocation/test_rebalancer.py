"""Memory shared out while queries stand: arrivals, departures, weights, activity, the budget."""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.load_shedding.shedding_units import Costs, units_of
from shedder.engine.panes.synopsis_resizing import size_of
from shedder.engine.runtime.environment import Environment
from shedder.engine.window_state.pane_resizer import kept_by_halving
from shedder.errors import BadSetting, BudgetExceeded, DiskFull, PrecisionUnavailable, UnknownQuery
from shedder.overload.memory_pressure import NONE, Pressure
from shedder.overload.shedding_steps import Steps
from shedder.simulation.virtual_environment import VirtualEnvironment
from tests.archive.power import PowerFiles
from tests.engine.query_worlds import (
    CREATE,
    SECOND,
    START,
    WINDOW,
    Advanced,
    explained,
    inside,
    log_registers,
    opened,
    reallocate,
    second,
)
from tests.engine.supervised import Recording, Supervised

DISTINCT = f"SELECT COUNT(DISTINCT k) AS d FROM s {WINDOW} WITHIN 1 PERCENT"
FREE = f"SELECT COUNT(DISTINCT v) AS d FROM s {WINDOW}"
GROUPED = f"SELECT k % 5000 AS g, SUM(v) AS t FROM s {WINDOW} GROUP BY g"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        yield engine


def bytes_of(db: Engine, name: str) -> int:
    rows = db.budgets.allocation().to_pylist()
    return sum(row["size_bytes"] for row in rows if row["query"] == name)


def check_sum(db: Engine) -> None:
    """What is explained sums to the budget, to the byte."""
    table = db.execute("EXPLAIN ALLOCATION").table
    assert sum(table["size_bytes"].to_pylist()) == db.core.synopsis_bytes
    assert table["synopsis"][-1].as_py() == "free"
    assert table["size_bytes"][-1].as_py() >= 0


def test_one_that_got_less_than_its_target_gets_more_when_memory_frees_up(db: Engine) -> None:
    whole = int(db.register("a", DISTINCT).granted["bytes"])
    db.budgets.set_synopsis_bytes(whole + whole // 3)
    late = db.register("b", DISTINCT)
    assert "missed" in late.granted
    assert log_registers(db) == {"a": 16, "b": 14}
    check_sum(db)
    db.query("a").drop()
    reallocate(db)
    assert log_registers(db) == {"b": 16}
    assert "missed" not in late.granted
    assert int(late.granted["bytes"]) == whole
    check_sum(db)


def test_a_departure_is_noticed_without_being_asked(tmp_path: Path) -> None:
    machine = Supervised()
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6) as db:
        db.execute(CREATE)
        whole = int(db.register("a", DISTINCT).granted["bytes"])
        db.budgets.set_synopsis_bytes(whole + whole // 3)
        db.register("b", DISTINCT)
        db.query("a").drop()
        machine.settle("shedder-allocation")  # The rebalancer has done all posted work.
        assert log_registers(db) == {"b": 16}


def test_a_new_query_takes_from_those_who_lose_least_and_no_tuple_is_lost(db: Engine) -> None:
    query = db.register("a", DISTINCT)
    pushed = []
    for number in range(10):
        pushed.append(second(number))
        db.push("s", pushed[-1])
    db.heartbeat("s", (START + 10) * SECOND)
    db.budgets.set_synopsis_bytes(int(query.granted["bytes"]) + 100_000)
    db.register("b", DISTINCT.replace("(DISTINCT k)", "(DISTINCT v)") + " ELSE FAIL WEIGHT 5")
    sizes = log_registers(db)
    assert sizes["b"] == 16
    assert sizes["a"] < 16
    query_state = db.core.standing_query("a")[1].state
    assert {size_of(pane.parts[-1]) for pane in query_state.panes.values()} == {sizes["a"]}
    [row] = query.answer().rows()
    k = np.asarray(inside(query.answer(), pushed)["k"])
    assert row["d_low"] <= len(np.unique(k)) <= row["d_high"]
    with pytest.raises(PrecisionUnavailable, match="needs"):
        db.register("c", DISTINCT + " ELSE FAIL")
    assert log_registers(db)["b"] == 16  # What was promised stays.
    ledger = db.ledger("s")
    assert ledger.accepted == ledger.applied == 10_000
    check_sum(db)


def test_weights_decide_who_gets_what_and_are_there_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        whole = int(db.register("a", DISTINCT).granted["bytes"])
        db.register("b", DISTINCT)
        db.budgets.set_synopsis_bytes(whole + whole // 3)
        answer = db.execute("ALTER QUERY b SET WEIGHT 50")
        assert answer.rows() == [{"status": "query b has WEIGHT 50"}]
        reallocate(db)
        assert log_registers(db) == {"a": 14, "b": 16}
        db.set_control("query", "a", "weight", "1e4")
        reallocate(db)
        assert log_registers(db) == {"a": 16, "b": 14}
    with opened(tmp_path) as db:
        assert log_registers(db) == {"a": 16, "b": 14}
        assert db.core.synopsis_bytes == whole + whole // 3
        assert db.core.standing_query("a")[1].weight == 1e4
        assert explained(db, "a", "HLL")["weight"] == 1e4


def thinned_at(share: float, steps: Steps) -> set[str]:
    """Return the queries that are thinned at this share of the CPU that full reading takes."""
    levels = steps.levels(share * steps.ends.full_ns).tolist()
    return {unit.query for unit, level in zip(steps.units, levels, strict=True) if level}


def test_weights_decide_who_is_thinned_first_too(db: Engine) -> None:
    for name, column in (("a", "k"), ("b", "v")):
        db.register(name, f"SELECT QUANTILE({column}, 0.5) AS m FROM s {WINDOW} WITHIN 0.02 RANK")
    db.execute("ALTER QUERY b SET WEIGHT 5")
    units = units_of(db.core.streams.values(), Costs(), {"s": 1e5})[1]
    weights = {unit.query: unit.weight for unit in units}
    assert weights["b"] == 5 * weights["a"]
    steps = Steps.of(units)
    assert thinned_at(0.8, steps) == {"a"}
    db.execute("ALTER QUERY b SET INACTIVE")
    steps = Steps.of(units_of(db.core.streams.values(), Costs(), {"s": 1e5})[1])
    assert thinned_at(0.8, steps) == {"b"}


def test_who_was_promised_a_target_says_with_what_error_it_is_kept(db: Engine) -> None:
    window = "[RANGE INTERVAL '{}' SECOND SLIDE INTERVAL '1' SECOND]"
    text = f"SELECT QUANTILE({{}}, 0.5) AS m FROM s {window} WITHIN 0.02 RANK ELSE {{}}"
    db.register("feeder", text.format("k", 10, "WIDEN"))
    db.register("kept", text.format("v", 10, "FAIL"))

    def promised() -> dict[str, float]:
        units = units_of(db.core.streams.values(), Costs(), {"s": 1e5})[1]
        return {unit.query: unit.promised for unit in units}

    one = 0.02 / 1.959964  # Standard errors in the half width of 95 %.
    assert promised() == {"feeder": math.inf, "kept": pytest.approx(one)}
    db.register("taker", text.format("k", 40, "FAIL"))
    assert promised() == {"feeder": pytest.approx(2 * one), "kept": pytest.approx(one)}
    for name in ("taker", "kept"):
        db.execute(f"ALTER QUERY {name} SET INACTIVE")
    assert promised() == {"feeder": math.inf, "kept": math.inf}


def test_who_reads_for_others_is_thinned_as_late_as_the_heaviest_of_them_wants(db: Engine) -> None:
    window = "[RANGE INTERVAL '{}' SECOND SLIDE INTERVAL '1' SECOND]"
    text = f"SELECT QUANTILE({{}}, 0.5) AS m FROM s {window}"
    db.register("feeder", text.format("k", 10) + " WITHIN 0.02 RANK")
    db.register("other", text.format("v", 10) + " WITHIN 0.02 RANK WEIGHT 3")

    def weights() -> dict[str, float]:
        units = units_of(db.core.streams.values(), Costs(), {"s": 1e5})[1]
        return {unit.query: unit.weight for unit in units}

    alone = weights()
    db.register("taker", text.format("k", 40) + " WITHIN 0.02 RANK WEIGHT 10")
    query_state = db.core.standing_query("feeder")[1].state
    assert [each.name for each in query_state.consumers] == ["taker"]
    # Its windows have four times the tuples, so what is skipped harms its answers half as much.
    assert weights() == {"feeder": alone["feeder"] * (1 + 10 / 2), "other": alone["other"]}
    steps = Steps.of(units_of(db.core.streams.values(), Costs(), {"s": 1e5})[1])
    assert thinned_at(0.8, steps) == {"other"}
    db.execute("DROP QUERY taker")
    assert weights() == alone


def test_who_is_set_inactive_keeps_what_nobody_needs_however_heavy_the_others(db: Engine) -> None:
    for name, weight in (("a", 1e6), ("b", 1e-3)):
        db.register(name, f"{DISTINCT} WEIGHT {weight:g}")
    before = log_registers(db)
    for name in ("a", "b"):
        sequence = db.core.applied_sequence
        db.execute(f"ALTER QUERY {name} SET INACTIVE")
        assert log_registers(db) == before
        # One record for the alteration, one for the heartbeat, and none for sizes.
        assert db.core.applied_sequence == sequence + 2
    db.execute("ALTER QUERY b SET ACTIVE")
    db.budgets.set_synopsis_bytes(int(db.core.standing_query("b")[1].granted["bytes"]) * 4 // 3)
    assert log_registers(db)["b"] == before["b"]  # A thousand millionth of the other's weight.
    assert log_registers(db)["a"] < before["a"]


def test_an_inactive_query_yields_and_gets_its_own_back(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(CREATE)
        whole = int(db.register("a", DISTINCT).granted["bytes"])
        db.execute("ALTER QUERY a SET INACTIVE")
        reallocate(db)
        assert log_registers(db) == {"a": 16}  # No other query needs the memory.
        db.budgets.set_synopsis_bytes(whole + whole // 3)
        db.register("b", DISTINCT)
        assert log_registers(db) == {"a": 14, "b": 16}
    with opened(tmp_path) as db:
        assert not db.core.standing_query("a")[1].active
        db.execute("ALTER QUERY a SET ACTIVE")
        db.execute("ALTER QUERY b SET INACTIVE")
        reallocate(db)
        assert log_registers(db) == {"a": 16, "b": 14}


def test_the_budget_changes_while_queries_stand(db: Engine) -> None:
    query = db.register("a", DISTINCT)
    whole = int(query.granted["bytes"])
    db.set_control("budget", "synopses", "bytes", str(whole // 4))
    assert log_registers(db)["a"] == 13
    check_sum(db)
    with pytest.raises(BudgetExceeded, match="do not fit"):
        db.set_control("budget", "synopses", "bytes", "1KiB")
    assert db.core.synopsis_bytes == whole // 4
    db.set_control("budget", "synopses", "bytes", "default")
    assert log_registers(db)["a"] == 16
    for value in ("0", "-5", "much", "1 XiB", "nan"):
        with pytest.raises(BadSetting, match="budget of synopses"):
            db.set_control("budget", "synopses", "bytes", value)
    for value, right in (("1.5", "whole number of bytes"), ("1e6", r"digits \(no 1e6\)")):
        with pytest.raises(BadSetting, match=f"'{value}': a size is a .*{right}"):
            db.set_control("budget", "synopses", "bytes", value)
    db.set_control("budget", "synopses", "bytes", "1.5MiB")
    assert db.core.synopsis_bytes == 3 << 19


@pytest.mark.parametrize("wrong", [1.5, "x", "3", True, float("nan"), 0, -1, 1 << 63])
def test_a_budget_that_is_none_is_refused_and_nothing_has_changed(db: Engine, wrong: Any) -> None:
    before = db.core.synopsis_bytes
    with pytest.raises(BadSetting, match=r"is .*; it must be a whole number of bytes, over 0"):
        db.budgets.set_synopsis_bytes(wrong)
    assert db.core.synopsis_bytes == before
    check_sum(db)


class FullDisk(PowerFiles):
    """A disk that refuses every write while `is_full` is true."""

    is_full = False

    def step(self, kind: str) -> OSError | None:
        if self.is_full and kind == "write":
            return OSError(errno.ENOSPC, "no space")
        return super().step(kind)


def test_a_budget_is_what_it_was_whatever_goes_wrong_while_it_is_shared_out(
    tmp_path: Path,
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    files = FullDisk(root)
    with Engine.open(root, machine=Environment(files=files), allocation_seconds=1e6) as db:
        db.execute(CREATE)
        whole = int(db.register("a", DISTINCT).granted["bytes"])
        before = db.core.synopsis_bytes
        files.is_full = True
        with pytest.raises(DiskFull):
            db.budgets.set_synopsis_bytes(whole // 2)
        files.is_full = False
        assert db.core.synopsis_bytes == before
        reallocate(db)
        assert log_registers(db) == {"a": 16}
        check_sum(db)


def test_nobody_without_a_promise_takes_one_away(db: Engine) -> None:
    whole = int(db.register("a", f"{DISTINCT} ELSE FAIL").granted["bytes"])
    db.budgets.set_synopsis_bytes(whole + 300_000)
    before = bytes_of(db, "a")
    panes = WINDOW.replace("'8' SECOND", "'100' SECOND")
    with pytest.raises(BudgetExceeded, match=r"292 KiB .* are free; it fits only if a lost what"):
        db.register("z", f"SELECT COUNT(DISTINCT v) AS d FROM s {panes}")
    assert bytes_of(db, "a") == before
    assert list(db.core.streams["s"].queries) == ["a"]


@pytest.mark.parametrize("value", ["0", str(2**63), str(2**70), "99999999999GiB"])
def test_a_budget_that_is_no_number_of_bytes_is_refused_and_nothing_changes(
    db: Engine, value: str
) -> None:
    before = db.core.synopsis_bytes
    with pytest.raises(BadSetting, match="over 0 and below 2\\^63"):
        db.set_control("budget", "synopses", "bytes", value)
    assert db.core.synopsis_bytes == before
    db.set_control("budget", "synopses", "bytes", str(2**63 - 1))
    check_sum(db)


def test_bad_alterations_are_refused_by_name(db: Engine) -> None:
    db.register("a", DISTINCT)
    for text in ("0", "-1", "nan", "x", "1e10", ""):
        with pytest.raises(shedder.errors.BadQuery, match="expected a number over 0"):
            db.execute(f"ALTER QUERY a SET WEIGHT {text}")
    wrong: list[Any] = [0.0, -1.0, float("nan"), float("inf"), "3", None, True]
    for weight in wrong:
        with pytest.raises(BadSetting, match=r"weight is .*; it must be a number over 0"):
            db.budgets.set_weight("a", weight)
    with pytest.raises(UnknownQuery):
        db.execute("ALTER QUERY absent SET ACTIVE")
    with pytest.raises(BadSetting, match=r"query\.active"):
        db.set_control("query", "a", "active", "perhaps")


def test_groups_that_come_to_need_more_get_it_when_others_need_less(tmp_path: Path) -> None:
    with shedder.open(
        tmp_path, checkpoint_seconds=1e6, allocation_seconds=1e6, group_bytes_max=8 << 20
    ) as db:
        assert isinstance(db, Engine)
        db.execute(CREATE)
        db.register("small", GROUPED.replace("5000", "10"))
        db.register("large", GROUPED)
        db.budgets.set_synopsis_bytes(4 << 20)
        before = bytes_of(db, "large")
        assert before < bytes_of(db, "small")  # Without data a tie: the first one has more.
        for number in range(10):
            db.push("s", second(number))
        db.heartbeat("s", (START + 10) * SECOND)
        reallocate(db)
        log_registers(db)
        assert bytes_of(db, "large") > before
        assert bytes_of(db, "large") > 1.5 * bytes_of(db, "small")
        cramped = db.query("large").answer()
        assert cramped.others is not None
        for number in range(10, 20):
            db.push("s", second(number))
        db.heartbeat("s", (START + 20) * SECOND)
        assert db.query("large").answer().table.num_rows > 1.3 * cramped.table.num_rows
        check_sum(db)


@pytest.mark.slow
def test_measured_errors_correct_the_curve_and_never_the_interval(db: Engine) -> None:
    """Both sets of an intersection are smaller than their union, so it errs by more."""
    text = f"SELECT DISTINCT_BOTH(k, v < 0.3, v > 0.7) AS b FROM s {WINDOW} WITHIN 5 PERCENT"
    query = db.register("q", text)
    wrong = db.register("wrong", text)
    for number in range(12):
        db.push("s", second(number, rows=8_000))
    reallocate(db)  # It looks at the next answer.
    believed = db.core.standing_query("wrong")[1].measured
    believed.factors = [16.0] * len(believed.factors)
    db.heartbeat("s", (START + 12) * SECOND)
    assert wrong.answer().rows() == query.answer().rows()
    assert set(believed.factors) == {16.0}
    before = explained(db, "q", "two theta")
    [row] = query.answer().rows()
    width = max(row["b_high"] - row["b"], row["b"] - row["b_low"]) / row["b"]
    assert before["measured_error"] == pytest.approx(width)
    assert before["factor"] > 1.0
    assert before["measured_error"] > before["predicted_error"]
    expected = before["predicted_error"] * before["factor"]
    assert before["expected_error"] == pytest.approx(expected)


def test_explain_tells_prices_and_what_targets_need(db: Engine) -> None:
    whole = int(db.register("a", DISTINCT).granted["bytes"])
    db.budgets.set_synopsis_bytes(whole // 2)
    db.push("s", second(0))
    row = explained(db, "a", "HLL of 2^14")
    assert row["target"] == 0.01
    assert row["predicted_error"] > 0.01
    assert row["needed_bytes"] > row["size_bytes"]
    assert row["saved_per_kib"] > 0
    assert row["thinning"] == "1"
    assert row["answers"] == "COUNT(DISTINCT k)"
    db.thinning.set_thinning("a", 3)
    assert explained(db, "a", "HLL of 2^14")["thinning"] == "1/8"
    control = db.control().to_pylist()
    controls = {(r["entity"], r["name"], r["key"]): r["value"] for r in control}
    assert controls["budget", "synopses", "bytes"] == str(whole // 2)
    assert controls["synopsis", "a/1", "size_bytes"] == str(row["size_bytes"])
    assert controls["query", "a", "weight"] == "1"


def test_nothing_is_shared_out_while_nothing_drifts(tmp_path: Path) -> None:
    machine = Advanced()
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6) as db:
        db.execute(CREATE)
        db.register("a", DISTINCT)
        db.push("s", second(0))
        reallocate(db)
        last = db.sharing.last
        db.sharing.tick()
        assert db.sharing.last is last
        machine.now_s += 2.0
        db.push("s", second(1))  # Now the stream has a pace.
        db.sharing.tick()
        assert db.sharing.last is not last


def test_a_budget_that_memory_pressure_halves_is_shared_out_by_the_next_look(db: Engine) -> None:
    whole = int(db.register("a", DISTINCT).granted["bytes"])
    db.budgets.set_synopsis_bytes(whole + whole // 3)
    assert log_registers(db) == {"a": 16}
    db.core.set_pressure(Pressure(halvings=1))
    db.sharing.tick()
    assert log_registers(db) == {"a": 15}
    check_sum(db)
    db.core.set_pressure(NONE)
    db.sharing.tick()
    assert log_registers(db) == {"a": 16}


def test_a_look_takes_the_apply_thread_for_a_moment_at_a_time(tmp_path: Path) -> None:
    """Others come to it after a millisecond, or after one query that takes longer."""
    machine = Slow()
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6, audit="off") as db:
        db.execute(CREATE)
        names = [f"q{number}" for number in range(10)]
        for name in names:
            db.register(name, DISTINCT)

        def looks() -> list[int]:
            """Return the number of queries that each turn of the apply thread examined."""
            machine.calls.clear()
            assert [one.name for one in db.sharing.requests()] == names
            return [len(future.result()) for future in machine.calls]

        machine.step_s = 0.0003
        assert looks() == [3, 3, 3, 1]
        machine.step_s = 0.0  # The clock may stand: then it is all at once.
        assert looks() == [10]


def test_what_halving_sketches_of_groups_would_keep_is_tried_once_for_each_closed_pane(
    db: Engine,
) -> None:
    text = f"SELECT k % 50 AS g, COUNT(DISTINCT v) AS d FROM s {WINDOW} GROUP BY g"
    db.register("a", text)
    query_state = db.core.standing_query("a")[1].state
    found: list[tuple[float, ...]] = []
    for number in range(4):
        db.push("s", second(number, rows=200 * 4**number))
        db.heartbeat("s", (START + number + 1) * SECOND)
        found.append(db.core.executor.call(query_state.resizer.halved).result())
        standing_again = db.core.executor.call(query_state.resizer.halved).result()
        assert standing_again is found[-1]  # Not tried again.
        newest = query_state.panes[query_state.panes.closed.numbers[-1]]
        tried = tuple(map(kept_by_halving, query_state.plan.parts, newest.parts))
        assert found[-1] == tried
    assert len(set(found)) > 1  # Panes with more values are another matter.


def test_an_engine_without_queries_has_all_of_it_free(db: Engine) -> None:
    reallocate(db)
    assert db.budgets.allocation().to_pylist()[0]["size_bytes"] == db.core.synopsis_bytes


def test_a_query_with_limits_keeps_them_whatever_becomes_free(tmp_path: Path) -> None:
    limited = DISTINCT.replace("PERCENT", "PERCENT COSTING AT MOST 200 KIB REWRITE NEVER")
    with opened(tmp_path) as db:
        db.execute(CREATE)
        query = db.register("a", limited)
        assert "missed" in query.granted
        size = log_registers(db)["a"]
        assert size < 16
        assert bytes_of(db, "a") <= 200 << 10
        reallocate(db)
        assert log_registers(db) == {"a": size}
        db.budgets.set_synopsis_bytes(bytes_of(db, "a") - 10_000)
        assert log_registers(db)["a"] < size
    with opened(tmp_path) as db:  # What it may have at most is known after a restart, too.
        db.budgets.set_synopsis_bytes(1 << 30)
        assert log_registers(db) == {"a": size}


def test_a_query_with_limits_may_take_from_others(db: Engine) -> None:
    whole = int(db.register("a", FREE).granted["bytes"])
    db.budgets.set_synopsis_bytes(whole + 20_000)
    before = log_registers(db)["a"]
    query = db.register("b", f"{FREE} WEIGHT 9 COSTING AT MOST 60 KIB")
    assert 20_000 < int(query.granted["bytes"]) <= 60 << 10
    assert log_registers(db)["a"] < before
    check_sum(db)


class Slow(Recording):
    """This machine, with a clock that goes on by a step whenever the apply thread asks it."""

    now_s, step_s = 0.0, 0.0

    def monotonic_s(self) -> float:
        if threading.current_thread().name == "shedder-apply":
            self.now_s += self.step_s
        return self.now_s


def test_a_stream_that_is_made_anew_has_a_pace_of_its_own(tmp_path: Path) -> None:
    """It begins at position 0 again: measured from the dropped one's, it would run backwards."""
    machine = Advanced()
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6) as db:
        for rows in (3_000, 1_000):
            db.execute(CREATE)
            db.push("s", second(0, rows))
            db.register("a", f"{DISTINCT} ELSE FAIL")
            machine.now_s += 2.0
            [request] = db.sharing.requests()
            assert request.tuples_per_s == 0.0  # All of it came before the first look.
            db.push("s", second(1, rows))
            machine.now_s += 2.0
            [request] = db.sharing.requests()
            assert request.tuples_per_s == rows / 2
            assert request.tuples == pytest.approx(8 * rows, rel=0.01)
            db.execute("DROP QUERY a")
            db.execute("DROP STREAM s")


def test_what_is_told_is_bound_by_the_coarsest_live_pane(db: Engine) -> None:
    """More bytes help once the panes of fewer have left; until then a window errs as they do."""
    query = db.register("a", DISTINCT)
    whole = int(query.granted["bytes"])
    db.budgets.set_synopsis_bytes(whole // 16)
    coarse = db.core.standing_query("a")[1].granted["count distinct"]
    db.push("s", second(0))
    db.budgets.set_synopsis_bytes(None)
    words = db.core.standing_query("a")[1].granted["count distinct"]
    error = coarse.split("predicted error ")[1]
    assert f"2^16 registers, predicted error {error} while older panes live, then 0.802%" in words
    assert f"{explained(db, 'a', 'HLL')['predicted_error']:.3%}" == error
    live: list[bool] = []
    for number in range(1, 12):  # The first second's pane is needed until the eighth.
        db.push("s", second(number))
        row = explained(db, "a", "HLL")
        live.append(row["predicted_error"] > 0.05)
        assert row["expected_error"] == pytest.approx(row["measured_error"], rel=0.25)
        assert row["predicted_error"] >= row["expected_error"]
    assert live == [True] * 8 + [False] * 3
    assert row["predicted_error"] <= 0.00802


def test_what_frequent_items_lack_is_measured_as_it_is(db: Engine) -> None:
    query = db.register("q", f"SELECT TOP(k, 3) AS top FROM s {WINDOW}")
    for number in range(12):
        db.push("s", second(number, rows=4_000))
    reallocate(db)  # It looks at the next answer.
    db.heartbeat("s", (START + 12) * SECOND)
    [row] = query.answer().rows()
    shown = explained(db, "q", "frequent items")
    missing = max(item["high"] - item["low"] for item in row["top"])
    assert missing > 0  # 20,000 values are too many for the table.
    assert shown["measured_error"] == pytest.approx(missing / 32_000, rel=0.2)
    assert shown["factor"] < 1.0  # A worst case was predicted.


def test_what_was_given_to_a_query_is_not_that_of_the_next_one_of_its_name(
    tmp_path: Path,
) -> None:
    machine = VirtualEnvironment(1, START * SECOND)
    with Engine.open(tmp_path, machine=machine, allocation_seconds=1e6, audit="off") as db:
        db.execute(CREATE)
        db.register("q", f"SELECT COUNT(DISTINCT k) AS d, SUM(v) AS t FROM s {WINDOW}")
        [before] = db.sharing.requests()
        whole = int(db.query("q").granted["bytes"])
        while db.core.synopsis_bytes >= whole:
            db.core.set_pressure(Pressure(halvings=db.core.pressure.halvings + 1))
        db.sharing.tick()
        [lost] = db.sharing.requests()
        assert lost.sizes < before.sizes  # Logged, and not in force yet.
        db.core.set_pressure(NONE)
        db.execute("DROP QUERY q")
        text = f"SELECT SUM(v) AS t, QUANTILE(v, 0.5) AS m FROM s {WINDOW} WITHIN 0.01 RANK"
        db.register("q", text)
        for _ in range(2):
            [request] = db.sharing.requests()
            assert request.sizes == tuple(part.size for part in request.plan.parts) != lost.sizes
            machine.settle()  # The record of the sizes comes last.
        check_sum(db)
