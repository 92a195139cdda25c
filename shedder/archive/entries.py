"""What the catalog lists: streams, queries, runs, the checkpoint; and their JSON forms."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from shedder.cql.query import StreamSchema
from shedder.cql.statement import ColumnDefinition, Layout
from shedder.cql.types import ColumnType

Value = bool | int | float | str | None
"""A column's value in the catalog: timestamps in µs, dates in days."""


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """A stream. id is never reused.

    retained_from_us: retention has removed tuples before this event time. retained_position: all
    that it has removed were below this position, so the next tuple's position is not lower.
    """

    id: int
    schema: StreamSchema
    retained_from_us: int | None = None
    retained_position: int = 0


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A standing query: its text, parameters as JSON, the position from which it counts."""

    name: str
    text: str
    parameters: str
    stream_id: int
    from_position: int
    created_us: int


@dataclass(frozen=True, slots=True)
class ColumnBasics:
    """What is known of a column in a run. NaN counts as NULL; None where all are NULL.

    A text longer than 1,024 characters is not kept as low or high: None, with `exact` false.
    """

    nulls: int
    low: Value
    high: Value
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """A closed stretch [first_position, end_position) of a stream, in one Parquet file.

    file: path below `runs/`. crc: CRC-32C of the whole file. low_us, high_us: smallest and largest
    event time. basics: by column name.
    """

    stream_id: int
    first_position: int
    end_position: int
    file: str
    size_bytes: int
    crc: int
    low_us: int
    high_us: int
    layout: Layout
    basics: dict[str, ColumnBasics]

    @property
    def rows(self) -> int:
        """Tuples in the run."""
        return self.end_position - self.first_position

    def overlaps(self, start_us: int | None, end_us: int | None) -> bool:
        """Whether some event time in [start_us, end_us) may be in the run; None is unbounded."""
        return (end_us is None or self.low_us < end_us) and (
            start_us is None or self.high_us >= start_us
        )


@dataclass(frozen=True, slots=True)
class Pane:
    """A closed pane of a query. version rises with each replacement."""

    start_us: int
    version: int
    blob: bytes


def schema_to_json(schema: StreamSchema) -> str:
    """The definition of a stream as the catalog keeps it."""
    return json.dumps(
        {
            "name": schema.name,
            "columns": [[c.name, c.type.value, c.nullable] for c in schema.columns],
            "time_column": schema.time_column,
            "lateness_us": schema.lateness_us,
            "retain_us": schema.retain_us,
            "layout": schema.layout.value,
            "seed": schema.seed,
        }
    )


def schema_from_json(text: str) -> StreamSchema:
    """Read what `schema_to_json` wrote."""
    fields: dict[str, Any] = json.loads(text)
    return StreamSchema(
        name=fields["name"],
        columns=tuple(
            ColumnDefinition(name, ColumnType(kind), nullable)
            for name, kind, nullable in fields["columns"]
        ),
        time_column=fields["time_column"],
        lateness_us=fields["lateness_us"],
        retain_us=fields["retain_us"],
        layout=Layout(fields["layout"]),
        seed=fields["seed"],
    )


def basics_to_json(basics: dict[str, ColumnBasics]) -> str:
    """The basics of a run as the catalog keeps them. Infinities become {"inf": 1} or -1."""
    return json.dumps(
        {
            name: [b.nulls, _value_to_json(b.low), _value_to_json(b.high), b.exact]
            for name, b in basics.items()
        },
        allow_nan=False,
    )


def basics_from_json(text: str) -> dict[str, ColumnBasics]:
    """Read what `basics_to_json` wrote."""
    return {
        name: ColumnBasics(nulls, _value_from_json(low), _value_from_json(high), exact)
        for name, (nulls, low, high, exact) in json.loads(text).items()
    }


def _value_to_json(value: Value) -> Value | dict[str, int]:
    if isinstance(value, float) and math.isinf(value):
        return {"inf": 1 if value > 0 else -1}
    return value


def _value_from_json(value: Value | dict[str, int]) -> Value:
    return math.inf * value["inf"] if isinstance(value, dict) else value
