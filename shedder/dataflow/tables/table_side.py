"""Table side of a join: a scan of a table below WHERE and select lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op, walk
from shedder.cql.plans.logical_plan import (
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    RelationKind,
    Scan,
    inputs_of,
    scans_of,
)
from shedder.cql.plans.plan_words import clause_of
from shedder.dataflow.joins.match_condition import MatchCondition
from shedder.dataflow.projection import Projection
from shedder.dataflow.selection import WhereFilter
from shedder.errors import Unimplemented

Steps = tuple[WhereFilter | Projection, ...]
"""WHERE and select lists over the rows of a table, in order."""

_LEFT = (JoinKind.SEMI, JoinKind.ANTI, JoinKind.ANTI_NULL_AWARE)  # Their rows are of the left.

_POSITION = ".#position"  # Ends the name of a column; the alias of a stream is before it.


def position_name(alias: str) -> str:
    """Return the name of the column with the positions of the tuples of a stream."""
    return alias + _POSITION


def is_position(name: str) -> bool:
    """Return whether a column has the positions of tuples."""
    return name.endswith(_POSITION)


def stream_of_position(name: str) -> str:
    """Return the alias of the stream of a column with positions."""
    return name.removesuffix(_POSITION)


def reads_tables_alone(plan: Plan) -> bool:
    """Return whether all scans of a plan are of tables."""
    return all(scan.kind is RelationKind.TABLE for scan in scans_of(plan))


def reads_versions(plan: Plan) -> bool:
    """Return whether all scans of a plan are of tables, and a tuple joins versions of some."""
    return reads_tables_alone(plan) and not all(scan.retroactive for scan in scans_of(plan))


def table_side(plan: Plan) -> tuple[Scan, Steps]:
    """The scan of a plan, and what is applied to its rows, in order.

    Raises:
      Unimplemented: the plan has other nodes.
    """
    match plan:
        case Scan():
            return plan, ()
        case Filter(input=source, condition=condition):
            scan, steps = table_side(source)
            return scan, (*steps, WhereFilter(condition))
        case Project(input=source, outputs=outputs):
            scan, steps = table_side(source)
            return scan, (*steps, Projection(outputs))
        case _:
            names = list(dict.fromkeys(scan.relation for scan in scans_of(plan)))
            tables = "tables" if len(names) > 1 else "table"
            raise Unimplemented(
                f"{clause_of(plan)} over the {tables} {', '.join(names)} alone, in a standing row "
                "query: not in this version; join each table with a stream, or make all RETROACTIVE"
            )


@dataclass(frozen=True, slots=True)
class PlacingStreams:
    """Aliases of the streams that decide the place of a row: those in the condition, else all.

    named: those that decide. every: also those that decide where an outer join has made all of the
    named NULL.
    """

    named: frozenset[str]
    every: frozenset[str]


def placing(stream: Plan, matches: MatchCondition) -> PlacingStreams:
    """Return the streams that decide the place of a row of a plan."""
    aliases = frozenset(_streams_of_rows(stream))
    parts = [key for key, _ in matches.keys]
    parts += [each for each in (matches.left, matches.rest) if each is not None]
    names = (part.name for each in parts for part in walk(each) if isinstance(part, Column))
    named = aliases & {name.partition(".")[0] for name in names} or aliases
    return PlacingStreams(named, aliases if _has_outer_join(stream) else named)


def _has_outer_join(plan: Plan) -> bool:
    is_outer = isinstance(plan, Join) and plan.kind in (JoinKind.LEFT, JoinKind.FULL)
    return is_outer or any(map(_has_outer_join, inputs_of(plan)))


def _streams_of_rows(plan: Plan) -> Iterator[str]:
    """Aliases of the streams whose tuples are in the rows: not those of EXISTS and IN."""
    if isinstance(plan, Scan) and plan.kind is RelationKind.STREAM:
        yield plan.alias
    for each in (plan.left,) if isinstance(plan, Join) and plan.kind in _LEFT else inputs_of(plan):
        yield from _streams_of_rows(each)


def columns_of_steps(schema: pa.Schema, steps: Steps) -> frozenset[str]:
    """Names of the columns of a table behind select lists. schema: of its scan."""
    schemas = [step.schema for step in steps if isinstance(step, Projection)]
    return frozenset((schemas or [schema])[-1].names)


def not_in_tests(
    condition: Expression | None,
    matches: MatchCondition,
    stream: frozenset[str],
    table: frozenset[str],
) -> list[MatchCondition]:
    """Conditions of anti-joins that leave the rows for which a condition is false of every row.

    For one equality `a = b` they leave out rows with a match, all rows while some b is NULL, and
    rows with a = NULL while there is any b. stream, table: names of the columns of each side.
    """
    if len(matches.keys) != 1 or matches != MatchCondition(matches.keys, None, None, None):
        true = Literal(True, ColumnType.BOOLEAN)
        unknown = Call(Op.COALESCE, (condition or true, true), ColumnType.BOOLEAN)
        return [MatchCondition.of(unknown, stream, table)]
    ((ours, theirs),) = matches.keys
    anything = MatchCondition((), None, None, None)
    return [
        matches,
        replace(anything, right=Call(Op.IS_NULL, (theirs,), ColumnType.BOOLEAN)),
        replace(anything, left=Call(Op.IS_NULL, (ours,), ColumnType.BOOLEAN)),
    ]
