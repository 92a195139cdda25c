"""Finishing answers: outputs, decisions, targets and contracts, against values worked out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shedder.errors import PrecisionUnavailable
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.answer_builder import finish, needs_exact
from synopses.model.estimate import Bound, Estimates, TopItem
from tests.queries.asking import ask, between, evidence, known

GROUPED = "domain, COUNT(DISTINCT client) AS clients FROM requests GROUP BY domain"


def test_an_approximate_output_has_its_four_companions():
    query = ask("COUNT(*) AS n FROM requests")
    answer = finish(query, evidence(query, [], known(7)))
    assert answer.rows() == [
        {"n": 7, "n_low": 7, "n_high": 7, "n_bound": "exact", "n_met": None},
    ]
    assert answer.approximate == ("n",)


def test_group_keys_and_functions_of_them_are_plain():
    query = ask("UPPER(domain) AS d, COUNT(*) AS n FROM requests GROUP BY domain")
    answer = finish(query, evidence(query, [["a", None]], known(1, 2)))
    assert answer.table.column_names == ["d", "n", "n_low", "n_high", "n_bound", "n_met"]
    assert answer.table["d"].to_pylist() == ["A", None]


def test_who_prints_an_answer_is_told_which_groups_may_be_missing():
    query = ask(GROUPED)
    found = evidence(query, [["a"]], known(1))
    assert "missing" not in str(finish(query, found))
    bound = replace(found, missing=MissingGroups(460.0, 0.99))
    assert str(finish(query, bound)).endswith(
        "\ngroups: none of 460 tuples or more is missing (99 %)"
    )
    unknown = replace(found, missing=MissingGroups(None, 1.0, "the archive lost a run"))
    assert str(finish(query, unknown)).endswith("\ngroups: the archive lost a run")


def test_ends_of_whole_numbers_move_inward_to_whole_numbers():
    query = ask("COUNT(DISTINCT client) AS n FROM requests")
    answer = finish(query, evidence(query, [], between([10.4], [9.2], [12.9])))
    row = answer.rows()[0]
    assert (row["n"], row["n_low"], row["n_high"]) == (10, 10, 12)


def test_an_end_that_an_integer_cannot_hold_is_null_and_reads_as_infinite():
    query = ask("COUNT(DISTINCT client) AS n FROM requests")
    answer = finish(query, evidence(query, [], between([10], [9], [np.inf])))
    assert answer.rows()[0]["n_high"] is None
    assert answer.estimate(0, "n").high == np.inf


def test_a_ratio_of_estimates_holds_its_corners_at_the_joint_confidence():
    query = ask("COUNT(DISTINCT client) / COUNT(DISTINCT domain) AS r FROM requests")
    parts = between([100], [90], [110], 0.975), between([10], [8], [12], 0.975)
    answer = finish(query, evidence(query, [], *parts))
    found = answer.estimate(0, "r")
    assert found.value == 10
    assert found.low == pytest.approx(90 / 12)
    assert found.high == pytest.approx(110 / 8)
    assert answer.confidence == pytest.approx(0.95)


def test_a_divisor_that_may_be_zero_leaves_no_bound():
    query = ask("COUNT(*) / COUNT(DISTINCT domain) AS r FROM requests")
    answer = finish(query, evidence(query, [], known(100), between([1], [0], [2])))
    row = answer.rows()[0]
    assert (row["r"], row["r_bound"], row["r_low"]) == (100.0, "none", None)


def test_a_composite_is_exact_in_the_groups_where_its_parts_are():
    query = ask("domain, COUNT(DISTINCT client) * 2 AS c FROM requests GROUP BY domain")
    clients = between([5, 5], [5, 4], [5, 6])
    clients = replace(clients, bound=np.array([Bound.EXACT, Bound.INTERVAL], np.uint8))
    answer = finish(query, evidence(query, [["a", "b"]], clients))
    assert answer.table["c_bound"].to_pylist() == ["exact", "interval"]
    assert answer.table["c_low"].to_pylist() == [10, 8]
    assert answer.table["c_high"].to_pylist() == [10, 12]


def test_null_for_certain_is_exact_and_null_for_want_of_rows_has_no_bound():
    query = ask("AVG(bytes) AS a FROM requests")
    certain = finish(query, evidence(query, [], known(None))).rows()[0]
    assert (certain["a"], certain["a_bound"]) == (None, "exact")
    unseen = between([0], [0], [0])
    unseen = replace(unseen, null=np.array([True]), bound=np.array([Bound.NONE], np.uint8))
    row = finish(query, evidence(query, [], unseen)).rows()[0]
    assert (row["a"], row["a_low"], row["a_bound"]) == (None, None, "none")


def test_top_is_a_list_of_structs_with_their_bounds():
    query = ask("TOP(client, 2) AS t FROM requests")
    items = np.empty(1, object)
    items[0] = [TopItem(8, 50, 48, 52, True), TopItem(9, 20, 18, 25, False)]
    top = between([0], [0], [0])
    answer = finish(query, evidence(query, [], replace(top, value=items, low=items, high=items)))
    assert answer.rows()[0]["t"][0] == {
        "value": 8, "count": 50, "low": 48, "high": 52, "guaranteed": True,
    }  # fmt: skip
    assert answer.table.column_names == ["t", "t_bound", "t_met"]


# --- HAVING, ORDER BY, LIMIT ------------------------------------------------------------------


def test_having_keeps_by_the_value_and_says_where_the_interval_straddles():
    query = ask(GROUPED + " HAVING COUNT(DISTINCT client) > 10")
    clients = between([20, 11, 9, 2], [18, 9, 7, 1], [22, 13, 11, 3], 1.0)
    answer = finish(query, evidence(query, [list("abcd")], clients))
    assert answer.table["domain"].to_pylist() == ["a", "b"]
    assert answer.table["certain"].to_pylist() == [True, False]
    assert any("1 groups that HAVING left out" in note for note in answer.notes)


def test_the_order_is_by_value_and_nulls_come_last():
    query = ask("domain, AVG(bytes) AS a FROM requests GROUP BY domain ORDER BY a DESC")
    answer = finish(query, evidence(query, [list("abc")], known(1.0, None, 3.0)))
    assert answer.table["domain"].to_pylist() == ["c", "a", "b"]
    assert answer.table["certain"].to_pylist() == [True, True, True]


def test_a_place_is_certain_when_no_other_interval_overlaps():
    query = ask(GROUPED + " ORDER BY clients DESC")
    clients = between([30, 20, 19], [28, 18, 17], [32, 22, 21], 1.0)
    answer = finish(query, evidence(query, [list("abc")], clients))
    assert answer.table["certain"].to_pylist() == [True, False, False]


def test_a_row_within_the_limit_is_certain_when_too_few_others_can_pass_it():
    query = ask(GROUPED + " ORDER BY clients DESC LIMIT 2")
    clients = between([30, 20, 19, 5], [28, 18, 17, 4], [32, 22, 21, 6], 1.0)
    answer = finish(query, evidence(query, [list("abcd")], clients))
    assert answer.table["domain"].to_pylist() == ["a", "b"]
    assert answer.table["certain"].to_pylist() == [True, False]


def test_equal_exact_values_at_the_limit_are_no_doubt_about_estimates():
    query = ask(GROUPED + " ORDER BY clients DESC, domain LIMIT 2")
    clients = replace(
        between([9, 5, 5], [8, 5, 5], [10, 5, 5], 1.0), bound=np.array([1, 0, 0], np.uint8)
    )
    answer = finish(query, evidence(query, [list("abc")], clients))
    assert answer.table["domain"].to_pylist() == ["a", "b"]
    assert answer.table["certain"].to_pylist() == [True, True]


def test_order_by_a_group_key_is_certain():
    query = ask(GROUPED + " ORDER BY domain DESC LIMIT 1")
    clients = between([9, 5], [1, 1], [10, 10])
    answer = finish(query, evidence(query, [["a", "b"]], clients))
    assert answer.table["domain"].to_pylist() == ["b"]
    assert answer.table["certain"].to_pylist() == [True]


def test_the_others_row_stays_last_whatever_having_order_and_limit_say():
    query = ask(GROUPED + " HAVING COUNT(DISTINCT client) > 3 ORDER BY clients LIMIT 1")
    found = evidence(query, [[None, "b", "c"]], known(1, 5, 4))
    answer = finish(query, replace(found, others=0))
    assert answer.table["domain"].to_pylist() == ["c", None]
    assert answer.others == 1
    assert "(others)" in str(answer)


# --- targets and contracts --------------------------------------------------------------------

TARGET = " WITHIN 10 PERCENT CONFIDENCE 95 PERCENT"


def test_a_value_meets_a_relative_target_by_its_larger_side():
    query = ask(GROUPED + TARGET)
    clients = between([100, 100, 0], [95, 80, 0], [110, 105, 1])
    answer = finish(query, evidence(query, [list("abc")], clients))
    assert answer.table["clients_met"].to_pylist() == [True, False, False]
    assert needs_exact(answer)


def test_an_exact_value_meets_every_target():
    query = ask("SUM(bytes) AS s FROM requests WITHIN 0.001 PERCENT")
    answer = finish(query, evidence(query, [], known(0.0)))
    assert answer.met is True
    assert not needs_exact(answer)


def test_an_absolute_target_is_in_the_unit_of_the_value():
    query = ask("QUANTILE(bytes, 0.5) AS q FROM requests WITHIN 2 ABSOLUTE")
    for half, met in ((1.9, True), (2.1, False)):
        found = evidence(query, [], between([0], [-half], [half]))
        assert finish(query, found).met is met


def test_less_confidence_than_asked_meets_nothing():
    query = ask("COUNT(DISTINCT client) AS n FROM requests" + TARGET)
    answer = finish(query, evidence(query, [], between([100], [99], [101], 0.9)))
    assert answer.met is False
    assert any("less than 95 %" in note for note in answer.notes)


def test_a_share_of_a_moment_in_time_is_no_precision():
    query = ask("QUANTILE(ts, 0.5) AS q FROM requests" + TARGET)
    answer = finish(query, evidence(query, [], between([1e15], [0.99e15], [1.01e15])))
    assert answer.met is False


def test_a_rank_target_is_met_by_the_rank_error():
    query = ask("QUANTILE(bytes, 0.5) AS q FROM requests WITHIN 0.01 RANK")
    found = evidence(query, [], between([5], [1], [9]))
    assert finish(query, found).met is False
    for error, met in ((0.009, True), (0.011, False)):
        errors = {query.aggregates[0]: np.array([error])}
        assert finish(query, replace(found, rank_errors=errors)).met is met


def test_omit_hides_the_value_and_keeps_its_interval():
    query = ask(GROUPED + TARGET + " ELSE OMIT")
    clients = between([100, 100], [99, 50], [101, 150])
    answer = finish(query, evidence(query, [["a", "b"]], clients))
    assert answer.table["clients"].to_pylist() == [100, None]
    assert answer.table["clients_low"].to_pylist() == [99, 50]


def test_widen_keeps_the_value_and_says_that_it_misses():
    query = ask(GROUPED + TARGET + " ELSE WIDEN")
    answer = finish(query, evidence(query, [["b"]], between([100], [50], [150])))
    assert answer.table["clients"].to_pylist() == [100]
    assert answer.table["clients_met"].to_pylist() == [False]


def test_fail_raises_and_shows_what_was_reached():
    query = ask(GROUPED + TARGET + " ELSE FAIL")
    clients = between([100, 100], [99, 50], [101, 150])
    with pytest.raises(PrecisionUnavailable, match=r"1 of 2 .* \('b',\) is 100 ± 50 %"):
        finish(query, evidence(query, [["a", "b"]], clients))


# --- names and empty answers ------------------------------------------------------------------


def test_no_groups_give_an_empty_table_of_the_same_columns():
    query = ask(GROUPED + " HAVING COUNT(DISTINCT client) > 1 ORDER BY clients LIMIT 3")
    some = finish(query, evidence(query, [["a"]], between([5], [4], [6])))
    nothing = np.zeros(0)
    empty = Estimates(
        nothing, nothing, nothing, np.zeros(0, np.uint8), np.zeros(0, np.bool_), 0.95, "test"
    )
    answer = finish(query, evidence(query, [[]], empty))
    assert answer.table.num_rows == 0
    assert answer.table.schema == some.table.schema
