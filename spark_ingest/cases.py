"""Cases in the words of Spark, and what their values were made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shedder.cql.expressions.expression import Aggregate, Column, inputs, walk
from shedder.cql.sql.exact_query import POSITION, SqlDialect, render
from shedder.queries.certification.audit import chooses
from shedder.queries.certification.claims import Case
from spark_ingest.scores import Made

Facts = dict[str, Any]
"""By name: what was counted for one aggregate of one case in one group; `rows` always."""

CONDITIONS_MAX = 120
"""Of one statement: the code of many more is longer than a method of the JVM may be (64 KB)."""


def made_of(case: Case, aggregate: Aggregate, shapes: Mapping[str, str]) -> Made:
    """What a value was made of; shapes: of the stream's columns, in words."""
    read = [n.name for part in inputs(aggregate) for n in walk(part) if isinstance(n, Column)]
    column = read[-1] if aggregate.conditions else (read or [""])[0]
    return Made(
        column,
        shapes.get(column, ""),
        case.answer.thinning,
        case.size_bytes,
        chooses(case.query),
    )


def condition_of(case: Case, time_column: str) -> str:
    """In Spark's words, which tuples are in the answer: its window, position and WHERE."""
    time, answer = quoted(time_column), case.answer
    parts = [f"{quoted(POSITION)} < {answer.position}"]
    parts += [f"{time} >= {_moment(answer.start_us)}"] if answer.start_us is not None else []
    parts += [f"{time} < {_moment(answer.end_us)}"] if answer.end_us is not None else []
    if case.query.where is not None:
        parts.append(f"coalesce({render(case.query.where, SqlDialect.SPARK)}, FALSE)")
    return "(" + " AND ".join(parts) + ")"


def within(spans: Iterable[tuple[int | None, int | None]], time_column: str) -> str:
    """In Spark's words, the shortest stretch of event time that has all of these in it.

    Files and blocks that lie outside of it are not read.
    """
    starts, ends = zip(*spans, strict=True)
    time, known = quoted(time_column), []
    if None not in starts:
        known.append(f"{time} >= {_moment(min(starts))}")
    if None not in ends:
        known.append(f"{time} < {_moment(max(ends))}")
    return " AND ".join(known) or "TRUE"


def quoted(name: str) -> str:
    """A name as Spark reads it."""
    return "`" + name.replace("`", "``") + "`"


def _moment(us: int) -> str:
    """A constant of the runs' own type: casting the column would cost more than all the rest."""
    return f"CAST(timestamp_micros({us}) AS TIMESTAMP_NTZ)"
