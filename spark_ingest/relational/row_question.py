"""Row questions to test answers with: seeded selections, joins, set operations and subqueries.

Both texts of a question come from one template of standard SQL. Windows are the only difference
beside quoting: CQL has them in FROM, and Spark reads views that have the rows of a window.
"""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Literal
from shedder.cql.expressions.expression_text import literal_text, quoted
from spark_ingest import cases
from spark_ingest.profile import ColumnProfile, StreamProfile

LEFT, RIGHT = "l", "r"
"""The aliases of both sides, in CQL and in Spark."""
WINDOW_TUPLES = 2_000
"""Tuples of a window in the mean; a join of two windows on one key has 4 million pairs at most."""
PAIR_TUPLES = 60
"""Tuples of a window whose pairs are rows of the answer."""
_SUMMED_MAX = 1 << 31  # Sums of larger numbers over millions of pairs may pass BIGINT.
_COLUMNS_MAX = 3
_SETS = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
_COMPARED = frozenset({ColumnType.BIGINT, ColumnType.DOUBLE, ColumnType.VARCHAR})
_T = TypeVar("_T")


class RowKind(Enum):
    """What a question has beside windows; the values are its names in reports."""

    ROWS = "(rows)"
    DISTINCT = "(distinct rows)"
    PAIRS = "(rows of a join)"
    JOIN = "(join by group)"
    LEFT_JOIN = "(left join by group)"
    SET = "(set operation)"
    IN = "(rows with IN)"
    EXISTS = "(rows with EXISTS)"


@dataclass(frozen=True, slots=True)
class SideWindow:
    """Window of one side. start_us: None: of a standing query, whose window ends at its instant."""

    start_us: int | None
    length_us: int

    def span(self, now_us: int) -> tuple[int, int]:
        """Return the event times of the window at an instant, half open."""
        start_us = now_us - self.length_us if self.start_us is None else self.start_us
        return start_us, start_us + self.length_us


@dataclass(frozen=True, slots=True)
class RelationalQuestion:
    """A row question in two texts.

    sql: in CQL. spark: in Spark's SQL, over views named LEFT and RIGHT with the rows of windows.
    standing: the question is registered, answered and dropped; else it is asked once.
    """

    kind: RowKind
    sql: str
    spark: str
    windows: tuple[SideWindow, SideWindow]
    standing: bool


def row_questions(
    profile: StreamProfile, *, rows: int, seed: int, count: int, standing_share: float = 0.25
) -> list[RelationalQuestion]:
    """Draw `count` row questions about a stream; the same arguments give the same ones.

    Args:
      profile: of the stream; without a column to join by, all questions are selections.
      rows: tuples of the stream.
      seed: of all that is drawn.
      count: number of questions, >= 0.
      standing_share: share of the questions, in [0, 1], that are asked of standing queries.
    """
    if not profile.columns:
        return []
    rng = np.random.default_rng([seed, 2])
    kinds = tuple(RowKind) if profile.keys else (RowKind.ROWS,)
    standing = round(count * standing_share)
    return [
        _draw(profile, rng, kinds[at % len(kinds)], rows, standing=at >= count - standing)
        for at in range(count)
    ]


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The words of one language. left, right: items of FROM with their aliases."""

    name: Callable[[str], str]
    string: Callable[[str], str]
    left: str
    right: str

    def of(self, alias: str, column: ColumnProfile) -> str:
        return f"{alias}.{self.name(column.name)}"

    def literal(self, column: ColumnProfile, value: Any) -> str:
        if column.type is ColumnType.VARCHAR:
            return self.string(value)
        return literal_text(Literal(value, column.type))


@dataclass(frozen=True, slots=True)
class _Comparison:
    column: ColumnProfile
    operator: str
    value: Any

    def text(self, alias: str, dialect: _Dialect) -> str:
        value = dialect.literal(self.column, self.value)
        return f"{dialect.of(alias, self.column)} {self.operator} {value}"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What was drawn for a question.

    word: its set operation, or NOT. summed: a column of integers; None: there is none.
    """

    key: ColumnProfile
    shown: tuple[ColumnProfile, ...]
    summed: ColumnProfile | None
    left: _Comparison | None
    right: _Comparison | None
    word: str


def _draw(
    profile: StreamProfile, rng: np.random.Generator, kind: RowKind, rows: int, *, standing: bool
) -> RelationalQuestion:
    tuples = PAIR_TUPLES if kind is RowKind.PAIRS else WINDOW_TUPLES
    left, right = (_window(profile, rng, tuples / max(rows, 1), standing) for _ in range(2))
    parts = _parts(profile, rng, kind)
    cql = _Dialect(
        quoted,
        lambda text: literal_text(Literal(text, ColumnType.VARCHAR)),
        f"{quoted(profile.stream)} [{_window_text(left)}] {LEFT}",
        f"{quoted(profile.stream)} [{_window_text(right)}] {RIGHT}",
    )
    spark = _Dialect(cases.quoted, _spark_text, LEFT, RIGHT)
    return RelationalQuestion(
        kind, _sql(kind, parts, cql), _sql(kind, parts, spark), (left, right), standing
    )


def _window(
    profile: StreamProfile, rng: np.random.Generator, share: float, standing: bool
) -> SideWindow:
    whole_us = profile.end_us - profile.start_us
    length_us = max(1, int(whole_us * min(1.0, share * float(rng.uniform(0.3, 1.0)))))
    if standing:
        return SideWindow(None, length_us)
    return SideWindow(
        profile.start_us + int(rng.integers(0, max(whole_us - length_us, 1))), length_us
    )


def _window_text(window: SideWindow) -> str:
    if window.start_us is None:
        return f"RANGE {window.length_us} MICROSECONDS"
    start, end = (
        literal_text(Literal(each, ColumnType.TIMESTAMP)) for each in window.span(window.start_us)
    )
    return f"FROM {start} TO {end}"


def _parts(profile: StreamProfile, rng: np.random.Generator, kind: RowKind) -> _Parts:
    columns = profile.columns
    shown = rng.choice(len(columns), min(len(columns), _COLUMNS_MAX), replace=False)
    summed = [
        column for column in columns if column.type is ColumnType.BIGINT and _is_small(column)
    ]
    return _Parts(
        key=_pick(rng, profile.keys or columns),
        shown=tuple(columns[int(at)] for at in sorted(shown)),
        summed=_pick(rng, summed) if summed else None,
        left=_comparison(profile, rng),
        right=_comparison(profile, rng),
        word=_pick(rng, _SETS if kind is RowKind.SET else ("", "NOT ")),
    )


def _is_small(column: ColumnProfile) -> bool:
    return all(abs(value) < _SUMMED_MAX for value in column.values)


def _comparison(profile: StreamProfile, rng: np.random.Generator) -> _Comparison | None:
    columns = [each for each in profile.columns if each.type in _COMPARED and each.values]
    if not columns or rng.random() < 0.3:
        return None
    column = _pick(rng, columns)
    operator = _pick(rng, ("<", ">=") if column.type.is_number else ("=", "<>"))
    return _Comparison(column, operator, _pick(rng, column.values))


def _sql(kind: RowKind, parts: _Parts, dialect: _Dialect) -> str:
    left, right, key = dialect.left, dialect.right, parts.key
    shown = ", ".join(dialect.of(LEFT, column) for column in parts.shown)
    of_left, of_right = dialect.of(LEFT, key), dialect.of(RIGHT, key)
    only_left = [parts.left.text(LEFT, dialect)] if parts.left else []
    only_right = [parts.right.text(RIGHT, dialect)] if parts.right else []
    match kind:
        case RowKind.ROWS:
            return f"SELECT {shown} FROM {left}{_where(only_left)}"
        case RowKind.DISTINCT:
            return f"SELECT DISTINCT {of_left} FROM {left}{_where(only_left)}"
        case RowKind.PAIRS:
            other = dialect.of(RIGHT, parts.shown[0])
            joined = f"{left} JOIN {right} ON {of_left} = {of_right}"
            return f"SELECT {shown}, {other} AS other FROM {joined}{_where(only_left + only_right)}"
        case RowKind.JOIN | RowKind.LEFT_JOIN:
            word = "JOIN" if kind is RowKind.JOIN else "LEFT JOIN"
            on = " AND ".join([f"{of_left} = {of_right}", *only_right])
            total = f", SUM({dialect.of(RIGHT, parts.summed)}) AS total" if parts.summed else ""
            return (
                f"SELECT {of_left}, COUNT(*) AS n, COUNT({of_right}) AS matched{total} "
                f"FROM {left} {word} {right} ON {on}{_where(only_left)} GROUP BY {of_left}"
            )
        case RowKind.SET:
            first = f"SELECT {of_left} FROM {left}{_where(only_left)}"
            return f"{first} {parts.word} SELECT {of_right} FROM {right}{_where(only_right)}"
        case RowKind.IN:
            inner = f"SELECT {of_right} FROM {right}{_where(only_right)}"
            outer = [*only_left, f"{of_left} {parts.word}IN ({inner})"]
            return f"SELECT {shown} FROM {left}{_where(outer)}"
        case RowKind.EXISTS:
            matched = _where([f"{of_right} = {of_left}", *only_right])
            outer = [*only_left, f"{parts.word}EXISTS (SELECT * FROM {right}{matched})"]
            return f"SELECT {shown} FROM {left}{_where(outer)}"


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _spark_text(text: str) -> str:
    """Return a constant of Spark's SQL, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _pick(rng: np.random.Generator, choices: Sequence[_T]) -> _T:
    return choices[int(rng.integers(len(choices)))]
