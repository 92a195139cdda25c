"""SHOW, DESCRIBE and EXPLAIN: tables and texts about streams, queries and plans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from shedder.cql.statements.archive_layout import layout_text
from shedder.cql.statements.table_text import text_of_table
from shedder.cql.statements.view_text import text_of_view
from shedder.engine.controls.stream_definitions import definition
from shedder.engine.dataflow.row_status import row_status
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.standing_queries.standing_query import status_of
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import LiveTable
from shedder.engine.tenants.access_control import own_streams, own_tables
from shedder.errors import BadQuery, UnknownStream
from shedder.queries.answers.answer import COMPANION, ROLE, Answer

_ROLLUPS = pa.schema(
    [(name, pa.string()) for name in ("rollup", "stream", "text")]
    + [("lazy", pa.bool_())]
    + [(name, pa.int64()) for name in ("runs_rolled", "runs", "rows", "size_bytes")]
)


def with_elapsed(answer: Answer, began: float) -> Answer:
    """The answer with the time that it took since a reading of the monotonic clock."""
    return replace(answer, elapsed_ms=(time.monotonic() - began) * 1e3)


def show(core: EngineState, what: str, caller: Caller = OPERATOR) -> pa.Table:
    """SHOW STREAMS, QUERIES or TABLES, as far as the caller may see them. On the apply thread."""
    streams = own_streams(core, caller)
    match what.upper():
        case "STREAMS":
            return pa.table(
                {
                    "stream": [s.schema.name for s in streams],
                    "tuples": pa.array([_tuples(core, s) for s in streams], pa.int64()),
                    "watermark": pa.array([s.watermark_us for s in streams], pa.timestamp("us")),
                    "definition": [_definition(core, s) for s in streams],
                    "archive": [layout_text(s.schema.layout) for s in streams],
                    "relaid": pa.array([relaid_share(core, s) for s in streams], pa.float64()),
                }
            )
        case "QUERIES":
            return queries(core, streams, caller)
        case "VIEWS":
            return views(core, streams)
        case "TABLES":
            return tables(core, own_tables(core, caller))
        case "INDEXES":
            return indexes(core, streams)
        case "ROLLUPS":
            return rollups(core, streams)
        case "RUNS":
            return runs(core, streams)
        case _:
            words = "SHOW STREAMS, SHOW QUERIES, SHOW VIEWS, SHOW TABLES, SHOW RUNS, "
            words += "SHOW INDEXES, SHOW ROLLUPS, SHOW TENANTS"
            raise BadQuery(f"SHOW {what}: there are {words}")


def queries(core: EngineState, streams: Sequence[Stream], caller: Caller = OPERATOR) -> pa.Table:
    """SHOW QUERIES: a row for each standing query that is no view.

    failed: why a row query makes no more rows; NULL: it does, or it is a query of aggregates.
    """
    found: list[tuple[str, list[str], str | None, str]] = [
        (each.state.name, [stream.schema.name], None, each.state.query.text)
        for stream in streams
        for each in stream.queries.values()
    ]
    found += [
        (each.name, list(each.streams), each.failed or None, core.rows.text(each))
        for each in core.rows.queries.values()
        if core.rows.view(each.name) is None and core.owns_rows(each, caller)
    ]
    return pa.table(
        {
            "query": pa.array([row[0] for row in found], pa.string()),
            "streams": pa.array([row[1] for row in found], pa.list_(pa.string())),
            "failed": pa.array([row[2] for row in found], pa.string()),
            "text": pa.array([row[3] for row in found], pa.string()),
        }
    ).append_column(*_older("stream", [row[1] for row in found]))


def views(core: EngineState, streams: Sequence[Stream]) -> pa.Table:
    """SHOW VIEWS: a row for each view. rows: inserted; failed: why no more are."""
    found = [
        (stream, writer)
        for stream in streams
        if (writer := core.rows.view(stream.schema.name)) is not None
    ]
    marks = [stream.watermark_us for stream, _ in found]
    reasons = [writer.query.failed or None for _, writer in found]
    reads = [list(writer.query.streams) for _, writer in found]
    return pa.table(
        {
            "view": pa.array([stream.schema.name for stream, _ in found], pa.string()),
            "streams": pa.array(reads, pa.list_(pa.string())),
            "rows": pa.array([writer.stored for _, writer in found], pa.int64()),
            "watermark": pa.array(marks, pa.timestamp("us")),
            "failed": pa.array(reasons, pa.string()),
            "definition": pa.array([_definition(core, it) for it, _ in found], pa.string()),
        }
    ).append_column(*_older("stream", reads))


def _older(name: str, streams: Sequence[Sequence[str]]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    """Return the column that `streams` replaces: programs read it by name, and no text shows it."""
    field = pa.field(name, pa.string(), metadata={ROLE: COMPANION})
    return field, pa.array([", ".join(each) for each in streams], pa.string())


def _definition(core: EngineState, stream: Stream) -> str:
    """The statement that makes a stream or view."""
    schema = stream.schema
    view = core.rows.view(schema.name)
    return definition(schema) if view is None else text_of_view(schema, view.query.query.text)


def tables(core: EngineState, known: Sequence[LiveTable]) -> pa.Table:
    """SHOW TABLES: a row for each table. image: below `tables/`; NULL before a checkpoint."""
    images = {entry.id: entry.image for entry in core.store.catalog.tables.entries()}
    found = [(table, table.rows, images.get(table.id)) for table in known]
    counts = pa.int64()
    return pa.table(
        {
            "table": pa.array([table.schema.name for table, _, _ in found], pa.string()),
            "rows": pa.array([rows.rows for _, rows, _ in found], counts),
            "size_bytes": pa.array([rows.size_bytes for _, rows, _ in found], counts),
            "version": pa.array([rows.version for _, rows, _ in found], counts),
            "lost_changes": pa.array([rows.lost for _, rows, _ in found], counts),
            "image": pa.array([image and image.file for _, _, image in found], pa.string()),
            "definition": pa.array([text_of_table(t.schema) for t, _, _ in found], pa.string()),
        }
    )


def indexes(core: EngineState, streams: Sequence[Stream]) -> pa.Table:
    """SHOW INDEXES: a row for each value index, and for each that is being made."""
    found = []
    for stream in streams:
        to_be = core.store.indexes.to_be(stream.id)
        columns = (*core.store.indexes.columns(stream.id), *to_be)
        lacking = [column for _, column in core.store.indexes.unindexed(stream.id, columns=columns)]
        runs = len(core.store.runs(stream.id))
        found += [
            (stream.schema.name, column, runs - lacking.count(column), runs, column in to_be)
            for column in columns
        ]
    return pa.table(
        {
            "stream": pa.array([row[0] for row in found], pa.string()),
            "column": pa.array([row[1] for row in found], pa.string()),
            "runs_indexed": pa.array([row[2] for row in found], pa.int64()),
            "runs": pa.array([row[3] for row in found], pa.int64()),
            "being_made": pa.array([row[4] for row in found], pa.bool_()),
        }
    )


def rollups(core: EngineState, streams: Sequence[Stream]) -> pa.Table:
    """SHOW ROLLUPS: a row for each rollup, and how much of the archive it is kept of."""
    found = []
    for stream in streams:
        runs = core.store.runs(stream.id)
        lacking = [entry for _, entry in core.store.rollups.unrolled(stream.id)]
        for entry, _ in core.store.rollups.entries(stream.id):
            rolled = [each for run in runs for each in run.rolled if each.rollup_id == entry.id]
            found.append(
                {
                    "rollup": entry.name,
                    "stream": stream.schema.name,
                    "text": entry.text,
                    "lazy": entry.lazy,
                    "runs_rolled": len(runs) - lacking.count(entry),
                    "runs": len(runs),
                    "rows": sum(each.rows for each in rolled),
                    "size_bytes": sum(each.size_bytes for each in rolled),
                }
            )
    return pa.Table.from_pylist(found, _ROLLUPS)


def runs(core: EngineState, streams: Sequence[Stream]) -> pa.Table:
    """SHOW RUNS: a row for each run of the archive."""
    found = [(s, run) for s in streams for run in core.store.runs(s.id)]
    marks = {
        (run.stream_id, run.first_position): mark.problem
        for stream in streams
        for run, mark in core.store.quarantine.runs(stream.id)
    }
    problems = [marks.get((run.stream_id, run.first_position)) for _, run in found]
    times = pa.timestamp("us")
    return pa.table(
        {
            "stream": pa.array([s.schema.name for s, _ in found], pa.string()),
            "first_position": pa.array([run.first_position for _, run in found], pa.int64()),
            "end_position": pa.array([run.end_position for _, run in found], pa.int64()),
            "first_time": pa.array([run.low_us for _, run in found], times),
            "last_time": pa.array([run.high_us for _, run in found], times),
            "size_bytes": pa.array([run.size_bytes for _, run in found], pa.int64()),
            "file": pa.array([run.file for _, run in found], pa.string()),
            "problem": pa.array(problems, pa.string()),
        }
    )


def _tuples(core: EngineState, stream: Stream) -> int:
    """Count the tuples of a stream: those that came, and those of its backfilled past."""
    return stream.position + core.store.backfills.rows(stream.id)


def relaid_share(core: EngineState, stream: Stream) -> float:
    """The share of the tuples in runs whose runs have the stream's layout."""
    rows = sum(run.rows for run in core.store.runs(stream.id))
    unlike = sum(run.rows for run in core.store.layouts.unlike(stream.id))
    return 1.0 - unlike / rows if rows else 1.0


def one(core: EngineState, name: str) -> pa.Table:
    """DESCRIBE of a stream or table (its columns) or a standing query (what it keeps)."""
    if name in core.streams:
        schema = core.streams[name].schema
        return pa.table(
            {
                "column": [c.name for c in schema.columns],
                "type": [c.type.value for c in schema.columns],
                "nullable": [c.nullable for c in schema.columns],
                "event_time": [c.name == schema.time_column for c in schema.columns],
            }
        )
    if name in core.tables:
        of = core.tables[name].schema
        return pa.table(
            {
                "column": [c.name for c in of.columns],
                "type": [c.type.value for c in of.columns],
                "nullable": [c.nullable for c in of.columns],
                "key_place": pa.array(
                    [of.key.index(c.name) + 1 if c.name in of.key else None for c in of.columns],
                    pa.int64(),
                ),
            }
        )
    for stream in core.streams.values():
        if name in stream.queries:
            facts = status_of(stream.queries[name])
            return pa.table({"key": list(facts), "value": list(facts.values())})
    rows = core.row_query(name)
    if rows is not None:
        facts = row_status(rows)
        return pa.table({"key": list(facts), "value": list(facts.values())})
    raise UnknownStream(name, [*sorted(core.streams), *sorted(core.tables), *core.query_names()])
