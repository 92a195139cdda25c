"""Questions to test answers with: seeded, random, of every aggregate and window there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import JOINS, OF_PAIRS, AggregateFunction, Literal
from shedder.cql.expressions.expression_text import literal_text, quoted
from spark_ingest.profile import ColumnProfile, StreamProfile

_QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_PERCENTS = (2, 5, 10, 20, 50)
_CONFIDENCES = (90, 95, 95, 99)
_TOP = 5
_ROWS_SHOWN = 3  # Of groups that LIMIT chooses by their values.
_CHOSEN_SHARE = 0.4  # Of the questions by groups whose values have an order.
_SHARES = (0.02, 0.05, 0.2)

ANYTHING = 1e15
"""An absolute target that any interval meets: the answer is what the cheapest source says."""

FUNCTIONS = (
    "COUNT(*)",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "VAR",
    "STDDEV",
    "FIRST",
    "LAST",
    *sorted(function.value for function in OF_PAIRS | JOINS),
    "COUNT(DISTINCT)",
    "QUANTILE",
    "TOP",
    "FREQUENT",
    "DISTINCT_BOTH",
    "DISTINCT_ONLY",
    "JACCARD",
    "CDF",
    "HISTOGRAM",
)
"""The aggregates that are asked for in turn, as the language writes them."""

# Every one-time function costs the same to ask; of standing ones the sketches are what is judged.
_STANDING = (
    "COUNT(DISTINCT)",
    "QUANTILE",
    "TOP",
    "FREQUENT",
    "DISTINCT_BOTH",
    "COUNT(DISTINCT)",
    "QUANTILE",
    "AVG",
    "DISTINCT_ONLY",
    "STDDEV",
    "JACCARD",
    "SELF_JOIN_SIZE",
    "JOIN_SIZE",
    "SUM",
    "HISTOGRAM",
)
# Where a part of the tuples is read, every aggregate is an estimate.
_THINNED = (*_STANDING, "COUNT(*)", "SUM", "AVG", "VAR", "CDF", "HISTOGRAM", "CORR")
_LEVELS = (2, 4, 8, 16, 64)
_OF_ANY = frozenset(
    {
        *("COUNT(*)", "COUNT", "FIRST", "LAST", "COUNT(DISTINCT)", "TOP", "FREQUENT"),
        *("SELF_JOIN_SIZE", "DISTINCT_BOTH", "DISTINCT_ONLY", "JACCARD"),
    }
)
"""What can be asked of columns that are no numbers."""

_NOT_ESTIMATED = frozenset({"MIN", "MAX", "FIRST", "LAST", "TOP", "FREQUENT", "HISTOGRAM"})
"""Aggregates by which no rows are chosen: lists, and values that are no estimates."""

WINDOWS = {
    "RangeWindow": (0.15, 0.7),
    "LandmarkWindow": (0.1, 0.15),
    "SnapshotWindow": (0.5, 0.0),
    "UnboundedWindow": (0.25, 0.15),
}
"""By kind of window: the shares of one-time and of standing questions that are asked over it."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Question:
    """A text of CQL with one aggregate, named `answer`.

    standing: to be registered, answered and dropped; else it is asked once.
    """

    sql: str
    standing: bool


def questions(
    profile: StreamProfile, *, seed: int, count: int, standing_share: float = 0.25
) -> list[Question]:
    """Draw `count` questions about a stream; the same seed and profile give the same ones.

    Args:
      profile: what the data look like; where no column has numbers that vary, nothing is asked
        that needs them.
      seed: of all that is drawn.
      count: how many, >= 0.
      standing_share: of the questions, in [0, 1], that are asked of standing queries; every other
        one of these is thinned.
    """
    standing_count = round(count * standing_share)
    rng = np.random.default_rng(seed)
    choosing = np.random.default_rng([seed, 1])  # So that other draws do not depend on it.
    functions = _fitting(profile, FUNCTIONS)
    found = [
        _draw(profile, rng, choosing, functions[at % len(functions)])
        for at in range(count - standing_count)
    ]
    for at in range(standing_count):
        thinned = at % 2 == 1
        names = _fitting(profile, _THINNED if thinned else _STANDING)
        name = names[at // 2 % len(names)]
        found.append(_draw(profile, rng, choosing, name, standing=True, thinned=thinned))
    return found


def _fitting(profile: StreamProfile, names: Sequence[str]) -> Sequence[str]:
    """Those of the aggregates that the columns have something for."""
    if profile.numbers:
        return names
    return [name for name in names if profile.columns and name in _OF_ANY] or ["COUNT(*)"]


def _draw(
    profile: StreamProfile,
    rng: np.random.Generator,
    choosing: np.random.Generator,
    function: str,
    *,
    standing: bool = False,
    thinned: bool = False,
) -> Question:
    group = _group(profile, rng)
    aggregate = _aggregate(profile, rng, function)
    condition = _condition(profile, rng)
    window = _window(profile, rng, standing=standing)
    sql = " ".join(
        part
        for part in (
            f"SELECT {group + ', ' if group else ''}{aggregate} AS answer",
            f"FROM {quoted(profile.stream)}{window}",
            f"WHERE {condition}" if condition else "",
            f"GROUP BY {group}" if group else "",
            _chosen(choosing, function) if group else "",
            _target(rng),
            f"THINNING 1/{_pick(rng, _LEVELS)}" if thinned else "",
        )
        if part
    )
    return Question(sql, standing)


def _aggregate(profile: StreamProfile, rng: np.random.Generator, function: str) -> str:
    match function:
        case "COUNT(*)":
            return function
        case "COUNT" | "FIRST" | "LAST":
            return f"{function}({_name(rng, profile.columns)})"
        case "COUNT(DISTINCT)":
            return f"COUNT(DISTINCT {_name(rng, profile.columns)})"
        case "TOP":
            listed = [c for c in profile.columns if c.type is not ColumnType.DOUBLE]
            return f"TOP({_name(rng, listed or profile.columns)}, {_TOP})"
        case "FREQUENT":
            listed = [c for c in profile.columns if c.type is not ColumnType.DOUBLE]
            promise = _pick(rng, ("", " NO FALSE POSITIVES"))
            share = _pick(rng, _SHARES)
            return f"FREQUENT({_name(rng, listed or profile.columns)}, {share}{promise})"
        case "SELF_JOIN_SIZE":
            return f"SELF_JOIN_SIZE({_name(rng, profile.columns)})"
        case "JOIN_SIZE":
            return f"JOIN_SIZE({_name(rng, profile.numbers)}, {_name(rng, profile.numbers)})"
        case "QUANTILE":
            return f"QUANTILE({_name(rng, profile.numbers)}, {_pick(rng, _QUANTILES)})"
        case "CDF":
            column = _pick(rng, profile.numbers)
            return f"CDF({quoted(column.name)}, {_literal(column, _pick(rng, column.values))})"
        case "HISTOGRAM":
            return f"HISTOGRAM({_edges(rng, _pick(rng, profile.numbers))})"
        case "DISTINCT_BOTH" | "DISTINCT_ONLY" | "JACCARD":
            sides = ", ".join(_comparison(rng, _pick(rng, profile.columns)) for _ in range(2))
            return f"{function}({_name(rng, profile.columns)}, {sides})"
        case _ if AggregateFunction(function) in OF_PAIRS:
            pair = _name(rng, profile.numbers), _name(rng, profile.numbers)
            return f"{function}({pair[0]}, {pair[1]})"
        case _:
            return f"{function}({_name(rng, profile.numbers)})"


def _group(profile: StreamProfile, rng: np.random.Generator) -> str | None:
    keys = profile.keys
    return _name(rng, keys) if keys and rng.random() < 0.35 else None


def _chosen(choosing: np.random.Generator, function: str) -> str:
    """The clauses that show only the greatest values, of some questions."""
    if function in _NOT_ESTIMATED or choosing.random() >= _CHOSEN_SHARE:
        return ""
    return f"ORDER BY answer DESC LIMIT {_ROWS_SHOWN}"


def _condition(profile: StreamProfile, rng: np.random.Generator) -> str | None:
    wanted = int(rng.choice([0, 1, 2], p=[0.35, 0.45, 0.2]))
    columns = profile.columns
    parts = [_comparison(rng, _pick(rng, columns)) for _ in range(wanted if columns else 0)]
    return " AND ".join(parts) or None


def _comparison(rng: np.random.Generator, column: ColumnProfile) -> str:
    name = quoted(column.name)
    values = [literal_text(Literal(value, column.type)) for value in column.values]
    if not values or (column.null_share > 0 and rng.random() < 0.1):
        return f"{name} IS NULL" if rng.random() < 0.5 else f"{name} IS NOT NULL"
    if column.type.is_number and len(values) > 1:
        low, high = sorted(int(at) for at in rng.choice(len(values), 2, replace=False))
        if rng.random() < 0.4:
            return f"{name} BETWEEN {values[low]} AND {values[high]}"
        return f"{name} {_pick(rng, ('<', '<=', '>', '>='))} {values[low]}"
    if rng.random() < 0.5:
        chosen = rng.choice(len(values), min(len(values), 3), replace=False)
        return f"{name} IN ({', '.join(values[int(at)] for at in chosen)})"
    return f"{name} {_pick(rng, ('=', '<>'))} {_pick(rng, values)}"


def _window(profile: StreamProfile, rng: np.random.Generator, *, standing: bool) -> str:
    """Mostly snapshots of random length, so that questions share as few tuples as can be."""
    shares = [share[standing] for share in WINDOWS.values()]
    length_us = profile.end_us - profile.start_us
    match str(rng.choice(list(WINDOWS), p=shares)):
        case "RangeWindow":
            return f" [{_range(rng, length_us)}]"
        case "LandmarkWindow":
            share = float(rng.uniform(0.05, 0.6))
            return f" [FROM {_moment(profile.start_us + int(length_us * share))}]"
        case "SnapshotWindow":
            covered = int(length_us * math.exp(rng.uniform(math.log(0.02), 0.0)))
            start = profile.start_us + int(rng.integers(0, max(length_us - covered, 1)))
            return f" [FROM {_moment(start)} TO {_moment(start + max(covered, 1_000_000))}]"
        case _:
            return ""


def _range(rng: np.random.Generator, length_us: int) -> str:
    """Sliding, by a sixtieth, tumbling, and with old panes that become coarser."""
    slide_s = max(int(length_us * float(rng.uniform(0.05, 0.6)) / 40 / 1_000_000), 1)
    whole = f"RANGE INTERVAL '{slide_s * 40}' SECOND"
    match _pick(rng, ("slides", "slides", "", "tumbles", "collapses")):
        case "slides":
            return f"{whole} SLIDE INTERVAL '{slide_s}' SECOND"
        case "tumbles":
            return f"{whole} SLIDE INTERVAL '{slide_s * 40}' SECOND"
        case "collapses":
            return f"{whole} SLIDE INTERVAL '{slide_s}' SECOND COLLAPSE"
        case _:
            return whole


def _edges(rng: np.random.Generator, column: ColumnProfile) -> str:
    """The arguments of a histogram: edges at quantiles, or equal parts between two of them."""
    chosen = sorted(rng.choice(len(column.values), min(len(column.values), 5), replace=False))
    edges = [_literal(column, column.values[int(at)]) for at in chosen]
    if rng.random() < 0.5:
        return f"{quoted(column.name)}, {int(rng.integers(2, 9))}, {edges[0]}, {edges[-1]}"
    return f"{quoted(column.name)}, [{', '.join(edges)}]"


def _literal(column: ColumnProfile, value: object) -> str:
    return literal_text(Literal(value, column.type))  # type: ignore[arg-type]


def _moment(us: int) -> str:
    """Event time as a literal, cut to seconds."""
    return literal_text(Literal(us // 1_000_000 * 1_000_000, ColumnType.TIMESTAMP))


def _target(rng: np.random.Generator) -> str:
    confidence = _pick(rng, _CONFIDENCES)
    size = f"{ANYTHING:.1f} ABSOLUTE" if rng.random() < 0.5 else f"{_pick(rng, _PERCENTS)} PERCENT"
    return f"WITHIN {size} CONFIDENCE {confidence} PERCENT"


def _name(rng: np.random.Generator, columns: Sequence[ColumnProfile]) -> str:
    return quoted(_pick(rng, columns).name)


def _pick(rng: np.random.Generator, choices: Sequence[_T]) -> _T:
    return choices[int(rng.integers(len(choices)))]
