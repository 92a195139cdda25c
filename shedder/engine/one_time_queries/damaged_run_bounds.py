"""Bounds for damaged runs: intervals widened by the rows that a scan could not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from shedder.archive.metadata.catalog_entries import RunBasics
from shedder.archive.metadata.position_gaps import lost_text
from shedder.archive.runs.run_format import missing_text
from shedder.archive.store.snapshot import Snapshot
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.missing_tuple_bounds import allow_for
from shedder.streams.basics import ColumnBasics

RUNS_NAMED_MAX = 20


def without_missing(query: BoundQuery, evidence: Evidence, snapshot: Snapshot) -> Evidence:
    """The evidence with every interval wide enough for the tuples of missing runs, and of holes.

    Of the first the catalog still knows how many there are and the range of each column, as of
    tuples that came too late for a pane; of the others only how many there are. How many of them
    are in the window and pass WHERE is not known: none to all.

    Args:
      query: whose evidence it is.
      evidence: exact, of what could be read.
      snapshot: what was read, and what is missing.
    """
    missing, holes = snapshot.missing, snapshot.holes
    if not missing and not holes:
        return evidence
    rows = sum(run.rows for run in missing)
    basics = _basics_of(snapshot, query.schema)
    if holes:
        lost = sum(end - first for first, end in holes)
        rows += lost
        basics = {name: _with_anything(known, lost) for name, known in basics.items()}
    became = f"cannot be read, because {_what(snapshot)} damaged"
    wide = allow_for(query, evidence, rows, basics, became=became)
    named = [f"missing: {missing_text(run)}".rstrip(",") for run in missing[:RUNS_NAMED_MAX]]
    if len(missing) > RUNS_NAMED_MAX:
        named.append(f"missing: {len(missing) - RUNS_NAMED_MAX:,} more runs")
    named += [f"missing: {lost_text(hole)}" for hole in holes[:RUNS_NAMED_MAX]]
    if len(holes) > RUNS_NAMED_MAX:
        named.append(f"missing: {len(holes) - RUNS_NAMED_MAX:,} more stretches")
    notes = (*wide.notes, *named)
    return replace(wide, complete=False, notes=notes)


def _what(snapshot: Snapshot) -> str:
    if not snapshot.holes:
        return "their runs are"
    return "runs and log are" if snapshot.missing else "a part of the log was"


def _with_anything(known: ColumnBasics, lost: int) -> ColumnBasics:
    """With so many more tuples, of which nothing is known, not even whether they have a value."""
    return ColumnBasics(known.rows + lost, known.nulls + lost)


def _basics_of(snapshot: Snapshot, schema: StreamSchema) -> Mapping[str, ColumnBasics]:
    """What is known for certain of the columns, the missing runs included."""
    runs = (*snapshot.runs, *snapshot.missing)
    found = {}
    for column in schema.columns:
        parts = [_of_run(run.basics[column.name], run.rows, column.type) for run in runs]
        parts += [ColumnBasics.of(batch.column(column.name)) for batch in snapshot.tail]
        # No part is left where all tuples were in a log that is lost.
        found[column.name] = reduce(ColumnBasics.merged, parts, ColumnBasics())
    return found


def _of_run(known: RunBasics, rows: int, kind: ColumnType) -> ColumnBasics:
    """NaN counts as NULL in both; booleans are 0 and 1, text has no range."""
    values = rows - known.nulls
    low, high = known.low, known.high
    if kind is ColumnType.VARCHAR or isinstance(low, str) or isinstance(high, str):
        return ColumnBasics(values, known.nulls)
    if kind is ColumnType.BOOLEAN and values:
        return ColumnBasics(values, known.nulls, 0, 1)
    return ColumnBasics(values, known.nulls, low, high)
