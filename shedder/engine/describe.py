"""Tables and texts that tell what is there: SHOW, DESCRIBE, EXPLAIN, the control table."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from shedder.cql.query import StreamSchema
from shedder.cql.statement import CreateStream
from shedder.cql.text import text_of_stream
from shedder.engine.published import Published, status_of
from shedder.engine.stream import Stream
from shedder.engine.thinning import levels_text
from shedder.errors import BadQuery, UnknownStream
from shedder.queries.answer import Answer

if TYPE_CHECKING:
    from shedder.engine.core import Core

_CONTROL = pa.schema([(name, pa.string()) for name in ("entity", "name", "key", "value")])


def is_same(schema: StreamSchema, statement: CreateStream) -> bool:
    """Whether a stream is what the statement would make."""
    mine = (schema.columns, schema.time_column, schema.lateness_us, schema.retain_us, schema.layout)
    return mine == (
        statement.columns,
        statement.time_column,
        statement.lateness_us,
        statement.retain_us,
        statement.layout,
    )


def definition(schema: StreamSchema) -> str:
    """The CREATE STREAM statement that makes such a stream."""
    statement = CreateStream(
        name=schema.name,
        columns=schema.columns,
        time_column=schema.time_column,
        lateness_us=schema.lateness_us,
        retain_us=schema.retain_us,
        layout=schema.layout,
        if_not_exists=False,
    )
    return text_of_stream(statement)


def with_elapsed(answer: Answer, began: float) -> Answer:
    """The answer with the time that it took since a reading of the monotonic clock."""
    return replace(answer, elapsed_ms=(time.monotonic() - began) * 1e3)


def show(core: Core, what: str) -> pa.Table:
    """SHOW STREAMS, QUERIES or TABLES. On the apply thread."""
    streams = list(core.streams.values())
    match what.upper():
        case "STREAMS":
            return pa.table(
                {
                    "stream": [s.schema.name for s in streams],
                    "tuples": pa.array([s.position for s in streams], pa.int64()),
                    "watermark": pa.array([s.watermark_us for s in streams], pa.timestamp("us")),
                    "definition": [definition(s.schema) for s in streams],
                }
            )
        case "QUERIES":
            rows = [(s, p) for s in streams for p in s.queries.values()]
            return pa.table(
                {
                    "query": pa.array([p.standing.name for _, p in rows], pa.string()),
                    "stream": pa.array([s.schema.name for s, _ in rows], pa.string()),
                    "text": pa.array([p.standing.query.text for _, p in rows], pa.string()),
                }
            )
        case "TABLES":
            return pa.table({"table": pa.array([], pa.string())})
        case _:
            raise BadQuery(f"SHOW {what}: there are SHOW STREAMS, SHOW QUERIES, SHOW TABLES")


def one(core: Core, name: str) -> pa.Table:
    """DESCRIBE of a stream (its columns) or a standing query (what it keeps)."""
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
    for stream in core.streams.values():
        if name in stream.queries:
            return status_of(stream.queries[name])
    known = sorted(core.streams) + sorted(q for s in core.streams.values() for q in s.queries)
    raise UnknownStream(name, known)


def standing(stream: Stream, published: Published) -> str:
    """EXPLAIN of a standing query."""
    keeps = published.standing
    grid = keeps.grid
    lines = [
        f"standing query {keeps.name} on stream {stream.schema.name}",
        f"  text: {keeps.query.text}",
    ]
    if grid.width_us is None:
        lines.append("  window: does not slide; one synopsis per aggregate")
    else:
        assert grid.range_us is not None
        assert grid.slide_us is not None
        lines.append(
            f"  window: range {grid.range_us / 1e6:g} s, slide {grid.slide_us / 1e6:g} s, "
            f"panes of {grid.width_us / 1e6:g} s, {len(keeps.panes)} live"
        )
    for aggregate, part in zip(keeps.query.aggregates, keeps.plan.answers, strict=True):
        kind = keeps.plan.parts[part].kind.value
        lines.append(f"  {aggregate.function.value}: pane synopses ({kind})")
    lines.append(f"  memory: {keeps.size_bytes:,} bytes; thinning: {levels_text(keeps.levels)}")
    lines += [f"  granted {key}: {value}" for key, value in published.granted.items()]
    return "\n".join(lines)


def control(core: Core) -> pa.Table:
    """Every entity's properties, one per row. On the apply thread."""
    rows: list[tuple[str, str, str, str]] = []
    for name, stream in core.streams.items():
        intake = core.intakes[name]
        facts = {
            "id": stream.id,
            "position": stream.position,
            "durable_position": intake.durable_position,
            "watermark_us": "" if stream.watermark_us is None else stream.watermark_us,
            "late": stream.late,
            "duplicate": intake.duplicate,
            "refused_batches": intake.refused_batches,
            "refused_rows": intake.refused_rows,
            "sample_bytes": stream.sample.size_bytes,
            "tail_rows": core.store.tail_rows(stream.id),
            "directory": core.store.directory,
        }
        rows += [("stream", name, key, str(value)) for key, value in facts.items()]
        for query, published in stream.queries.items():
            table = status_of(published)
            rows += [("query", query, row["key"], row["value"]) for row in table.to_pylist()]
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(_CONTROL))]
    return pa.table(columns, schema=_CONTROL)
