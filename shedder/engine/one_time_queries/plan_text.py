"""Text of a plan of rows for EXPLAIN: a line per operator, inputs indented below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Distinct,
    Filter,
    Join,
    Ordered,
    Plan,
    Project,
    Scan,
    SetOperation,
    ToStream,
    WindowOf,
    inputs_of,
)
from shedder.cql.plans.plan_words import window_text, with_plain_names
from shedder.cql.statements.relational_text import as_of_text
from shedder.engine.one_time_queries.index_source import Lookup
from shedder.engine.one_time_queries.row_sources import RowSource
from shedder.engine.one_time_queries.table_source import TableSource
from shedder.queries.answers.text_format import stretch_text


def plan_text(
    plan: Plan,
    sources: Mapping[str, RowSource],
    tables: Mapping[str, TableSource],
    rows_needed: int | None,
    lookups: Mapping[str, Lookup | None],
) -> str:
    """The plan as an indented tree.

    Args:
      plan: of a bound query.
      sources: of its scans of streams, by alias.
      tables: of its scans of tables, by alias.
      rows_needed: rows of the only scan that the plan needs; None: all.
      lookups: by alias of a stream, how a value index finds its rows; None: it does not.
    """
    reading = {
        alias: list(_reading(source, rows_needed, lookups[alias]))
        for alias, source in sources.items()
    }
    reading |= {alias: list(_reading_table(table)) for alias, table in tables.items()}
    return with_plain_names("\n".join(_lines(plan, reading, 0)))


def _lines(plan: Plan, reading: Mapping[str, list[str]], depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(plan, Scan):
        yield indent + f"Scan {plan.relation}" + as_of_text(plan.as_of_us) + _alias(plan)
        yield from (f"{indent}  {line}" for line in reading[plan.alias])
        return
    yield indent + _operator(plan)
    for part in inputs_of(plan):
        yield from _lines(part, reading, depth + 1)


def _alias(scan: Scan) -> str:
    return "" if scan.alias == scan.relation else f" AS {scan.alias}"


def _operator(plan: Plan) -> str:
    match plan:
        case WindowOf():
            where = "" if plan.condition is None else f" WHERE {text_of(plan.condition)}"
            return f"Window {window_text(plan.window)}{where}"
        case Filter():
            return f"Filter {text_of(plan.condition)}"
        case Project():
            outputs = (f"{text_of(out.expression)} AS {out.name}" for out in plan.outputs)
            return f"Project {', '.join(outputs)}"
        case Join():
            on = "" if plan.condition is None else f" ON {text_of(plan.condition)}"
            return f"Join {plan.kind.value}{on}"
        case Distinct():
            return "Distinct"
        case SetOperation():
            return plan.operator.value + (" ALL" if plan.all else "")
        case Aggregated():
            parts = [text_of(each) for each in (*plan.groups, *plan.aggregates)]
            return f"Aggregate {', '.join(parts)}"
        case Ordered():
            return _order(plan)
        case ToStream():
            return plan.operator.value
        case Scan():
            raise AssertionError(plan)
    assert_never(plan)


def _order(plan: Ordered) -> str:
    keys = (f"{text_of(key.expression)}{' DESC' * key.descending}" for key in plan.keys)
    parts = [f"Order by {', '.join(keys)}"] if plan.keys else []
    if plan.limit is not None:
        parts.append(f"limit {plan.limit:,}" if parts else f"Limit {plan.limit:,}")
    if plan.offset:
        parts.append(f"offset {plan.offset:,}")
    return ", ".join(parts)


def _reading(source: RowSource, rows_needed: int | None, lookup: Lookup | None) -> Iterator[str]:
    """What is read of a stream: event times, runs, rows and columns."""
    runs, tail = source.runs, sum(batch.num_rows for batch in source.tail())
    rows = sum(map(source.live_rows, runs))
    yield f"event times {stretch_text(source.span.start_us, source.span.end_us)}"
    pruned = f"{len(runs):,} run{'s' * (len(runs) != 1)} ({source.pruned:,} pruned)"
    yield f"at most {rows:,} rows of {pruned}, {tail:,} of the log"
    if lookup is not None:
        yield f"index on {lookup.text}"
    if rows_needed is not None:
        yield f"row groups until {rows_needed:,} rows are there"
    yield f"columns {', '.join(source.columns)}"


def _reading_table(source: TableSource) -> Iterator[str]:
    """What is read of a table: rows and columns."""
    yield f"{source.rows.rows:,} rows of a table, as of its change {source.rows.version:,}"
    yield f"columns {', '.join(source.columns)}"
