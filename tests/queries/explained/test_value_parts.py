"""Parts of one value: what each step adds, when a step has no bound or an end is infinite."""

from __future__ import annotations

import math

import pytest

from shedder.queries.answers.answer import Answer
from shedder.queries.answers.precision_table import PartRow, precision_table
from shedder.queries.evidence.precision_parts import ValueStep, WidthPrices, value_parts
from shedder.queries.evidence.shown_widths import ShownWidth
from synopses.model.estimate import Bound

PRICED = WidthPrices(0.25, 2.0, None, "no seconds")
FIRST = PartRow(1, None, "n", "")


def step(part: str, lower: float | None, upper: float | None = None) -> ValueStep:
    """A step behind which the value 10 has these distances; lower None: it has no bound."""
    upper = lower if upper is None else upper
    bound = Bound.NONE if lower is None else Bound.INTERVAL
    low = None if lower is None else 10.0 - lower
    high = None if upper is None else 10.0 + upper
    width = ShownWidth(10.0, low, high, lower, upper, bound)
    return ValueStep(part, width, 0.95, PRICED, "" if lower is not None else f"{part} is open")


def distances(*steps: ValueStep) -> list[tuple[float | None, float | None]]:
    return [(row.lower, row.upper) for row in value_parts(FIRST, steps)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("a", 2.0, 3.0), step("b", 2.5, 7.0)], [(2.0, 3.0), (0.5, 4.0), (2.5, 7.0)]),
        ([step("a", 2.0), step("b", 1.5, 2.5)], [(2.0, 2.0), (-0.5, 0.5), (1.5, 2.5)]),
        ([step("a", 2.0), step("b", None), step("c", None)], [(2.0, 2.0), *[(None, None)] * 3]),
        ([step("a", None), step("b", 4.0)], [(None, None), (4.0, 4.0), (4.0, 4.0)]),
        (
            [step("a", 2.0), step("b", 2.0, math.inf), step("c", 3.0, math.inf)],
            [(2.0, 2.0), (0.0, math.inf), (1.0, None), (3.0, math.inf)],
        ),
        ([step("a", 2.0, math.inf), step("b", 2.0, 5.0)], [(2.0, None), (0.0, 5.0), (2.0, 5.0)]),
    ],
)
def test_parts_are_the_differences_and_sum_to_the_last_step(steps, expected):
    assert distances(*steps) == expected


def test_prices_are_shares_of_the_half_width_and_at_most_all_of_it():
    part, _ = value_parts(FIRST, [step("a", 2.0, 6.0)])
    assert (part.saved_per_kib, part.saved_per_ns, part.saved_per_second) == (1.0, 4.0, None)
    assert part.reason == "no seconds"


def test_a_missing_width_has_the_reason_of_its_step():
    reasons = [row.reason for row in value_parts(FIRST, [step("a", None), step("b", None)])]
    assert reasons[0] == "a is open"
    assert "cannot be told" in str(reasons[1])
    assert reasons[2] == "b is open"


def test_a_terminal_shows_a_paragraph_for_each_value_and_each_reason_once():
    rows = [*value_parts(FIRST, [step("late tuples", 1234.0, math.inf)])]
    text = str(Answer(precision_table(rows, 2_000))).splitlines()
    assert text[0] == "n: 10, -1,224 to unbounded (95 %)"
    assert text[2].split() == ["late", "tuples", "1,234", "unbounded", "none", "none", "none"]
    assert text[3].split() == ["interval", "1,234", "unbounded"]
    assert [line for line in text if "no seconds" in line] == ["  late tuples: no seconds"]
    assert "… 2,000 more rows of the answer" in text
