"""Verdict on an answer's intervals against the truth."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from scipy.special import bdtr, bdtrik

from shedder.queries.answers.answer import Answer

ROUNDING = 1e-9  # Of the value: floats are added in another order here.
_NUMBERS = frozenset({"int64", "int32", "double"})
FALSE_ALARM = 1e-6  # Probability that honest intervals of one world fall below their gate.


@dataclass(frozen=True, slots=True)
class AnswerVerdict:
    """Of one answer's numbers; lists, texts and times are not compared.

    intervals: values with an interval; held: those of them whose interval held the truth.
    exact: values that were called exact; wrong: those of them that were not. unbounded: without
    a bound. errors: relative, by output, of each value; of lists, of the counts of what belongs in
    them. untold: by output, values that there are and the answer has not: of a group that it
    misses, or NULL. widths: relative half widths of the intervals.
    one_draw: by output and group, intervals and those that held, where one draw stands for many
    windows: of distinct values, which go by their hashes. They are not among the others.
    """

    intervals: int
    held: int
    exact: int
    wrong: int
    unbounded: int
    errors: Mapping[str, tuple[float, ...]]
    untold: Mapping[str, int]
    widths: tuple[float, ...]
    one_draw: Mapping[tuple[object, ...], tuple[int, int]]


def judge(answer: Answer, truth: Answer, by_hash: Collection[str] = ()) -> AnswerVerdict:
    """Compare an answer's numbers with the exact answer's, group by group.

    Args:
      answer, truth: of the same window.
      by_hash: outputs that go by the hashes of values: as long as the same values come, an error of
        one window is one of the next, too.
    """
    keys = [name for name in answer.outputs if name not in answer.approximate]
    names = [n for n in answer.approximate if str(answer.table.schema.field(n).type) in _NUMBERS]
    true_rows = {tuple(row[key] for key in keys): row for row in truth.rows()}
    shown = [row for number, row in enumerate(answer.rows()) if number != answer.others]
    lists = [n for n in answer.approximate if pa.types.is_list(answer.table.schema.field(n).type)]
    groups = [tuple(row[key] for key in keys) for row in shown]
    both = [(g, row, true_rows[g]) for g, row in zip(groups, shown, strict=True) if g in true_rows]
    values = [
        (name, group, _Value.of(row, name, true[name]))
        for group, row, true in both
        for name in names
        if _both(row[name], true[name])
    ]
    known = [value for _, _, value in values]
    ours = [each for each in values if each[2].bound == "interval"]
    intervals = [value for name, _, value in ours if name not in by_hash]
    errors = {n: tuple(value.error for name, _, value in values if name == n) for n in names}
    errors |= {n: tuple(_list_error(row[n], true[n]) for _, row, true in both) for n in lists}
    exact = [value for value in known if value.bound == "exact"]
    wanted = {n: sum(row[n] is not None for row in true_rows.values()) for n in names}
    wanted |= dict.fromkeys(lists, len(true_rows))
    return AnswerVerdict(
        intervals=len(intervals),
        held=sum(value.held for value in intervals),
        exact=len(exact),
        wrong=sum(not value.held for value in exact),
        unbounded=len(known) - len(ours) - len(exact),
        errors=errors,
        untold={name: count - len(errors[name]) for name, count in wanted.items()},
        widths=tuple(value.width for value in intervals if math.isfinite(value.width)),
        one_draw={
            (name, *group): (1, int(value.held)) for name, group, value in ours if name in by_hash
        },
    )


def _list_error(listed: list[Any] | None, true: list[Any] | None) -> float:
    """Of the counts of what belongs in a list, the mean relative error; 1 for what is missing."""
    counts = {item["value"]: item["count"] for item in listed or []}
    wanted = [(item["count"], counts.get(item["value"], 0)) for item in true or []]
    return math.fsum(min(abs(n - got) / n, 1.0) for n, got in wanted) / max(len(wanted), 1)


def gate_of_draws(
    draws: Collection[tuple[int, int]], confidence: float, alarm: float = FALSE_ALARM
) -> bool:
    """Return whether enough draws were good, each of which many intervals share.

    A draw is bad when more than half of its intervals missed. Of honest ones at most 1 - confidence
    miss in the mean, so by Markov's inequality a draw is bad with twice that chance at most.
    """
    good = sum(2 * held >= intervals for intervals, held in draws)
    return good >= gate(len(draws), max(0.0, 1 - 2 * (1 - confidence)), alarm)


def gate(trials: int, confidence: float, alarm: float = FALSE_ALARM) -> int:
    """Return the fewest intervals that must hold; honest ones miss it with probability `alarm`.

    It is the quantile of the binomial distribution, as of `scipy.stats`, which takes half a second
    to import.
    """
    if not trials or not 0.0 < confidence < 1.0:
        return trials if confidence >= 1.0 else 0
    fewest = math.ceil(bdtrik(alarm, trials, confidence))
    before = max(fewest - 1, 0)  # bdtrik may be above a whole number by its rounding alone.
    return before if bdtr(before, trials, confidence) >= alarm else fewest


@dataclass(frozen=True, slots=True)
class _Value:
    bound: str
    held: bool
    error: float
    width: float

    @classmethod
    def of(cls, row: dict[str, Any], name: str, true: float) -> _Value:
        value, low, high = row[name], row[name + "_low"], row[name + "_high"]
        bound = row[name + "_bound"]
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        slack, size = ROUNDING * abs(true), abs(true) or 1.0
        held = low - slack <= true <= high + slack
        return cls(bound, held, abs(value - true) / size, (high - low) / 2 / size)


def _both(value: float | None, true: float | None) -> bool:
    return value is not None and true is not None
