"""Catalog entries: streams, queries, runs, the checkpoint; and their JSON forms."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Hybrid, Layout, layout_from_text, layout_text
from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import THINS, OnOverload, Policy
from shedder.cql.statements.statement import ColumnDefinition
from synopses.samples.random_partition import block_sizes

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
class RunBasics:
    """What is known of a column in a run. NaN counts as NULL; None where all are NULL.

    A text longer than 1,024 characters is not kept as low or high: None, with `exact` false.
    """

    nulls: int
    low: Value
    high: Value
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Footer:
    """Where a Parquet file's metadata begins, and the CRC-32C of all from there to the end.

    The metadata hold the checksums of the rest, so that a part can be verified without the whole.
    """

    offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A sampled copy of a run: the tuples whose place, uniform in (0, 1), is at least `reduction`.

    Given how many there are, they are a simple random sample of the run's; a copy at a larger
    reduction is a part of one at a smaller. file: path below `runs/`. rows: tuples in it.
    """

    reduction: float
    file: str
    rows: int
    size_bytes: int
    crc: int
    footer: Footer


@dataclass(frozen=True, slots=True)
class RollupEntry:
    """A rollup of a stream, as it was said. id is never reused.

    lazy: runs get it when a question that it would have answered has read them, not on arrival.
    """

    id: int
    name: str
    stream_id: int
    text: str
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Rolled:
    """A run's partial aggregates, as a rollup says.

    rollup_id: whose. file: path below `runs/`. rows: of the file, one per window and group.
    deleted: how many rows of the run were deleted, and are left out; the file is used only while
    that is how many there are.
    """

    rollup_id: int
    file: str
    rows: int
    size_bytes: int
    crc: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Run:
    """A closed stretch [first_position, end_position) of a stream, in one Parquet file.

    file: path below `runs/`. crc: CRC-32C of the whole file. low_us, high_us: smallest and largest
    event time. layout: in which it was written, also if the stream's is another one now. blocks:
    exchangeable parts of the file, 1 when only the whole is a sample. footer: None in files of
    catalogs of version 1. basics: by column name. copies: sampled ones, by rising reduction.
    rolled: partial aggregates, by rollup. purged: how many of the positions have no row any more,
    since what was deleted there was taken out of the file. halvings: of the last of the equal
    blocks, into a half, a quarter ..., each of which counts in `blocks`.
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
    basics: dict[str, RunBasics]
    blocks: int = 1
    footer: Footer | None = None
    copies: tuple[Copy, ...] = ()
    rolled: tuple[Rolled, ...] = ()
    purged: int = 0
    halvings: int = 0

    @property
    def files(self) -> tuple[str, ...]:
        """The run's file, those of its copies and of its partial aggregates."""
        return (self.file, *(c.file for c in self.copies), *(r.file for r in self.rolled))

    def rolled_by(self, rollup_id: int) -> Rolled | None:
        """Its partial aggregates of a rollup; None: there are none yet."""
        return next((each for each in self.rolled if each.rollup_id == rollup_id), None)

    def of_rolled(self, rolled: Rolled) -> Run:
        """The run with the file of partial aggregates in the place of its own, to be verified."""
        return replace(
            self,
            file=rolled.file,
            size_bytes=rolled.size_bytes,
            crc=rolled.crc,
            footer=None,
            blocks=1,
            copies=(),
            rolled=(),
        )

    def of_copy(self, copy: Copy) -> Run:
        """The run with a copy's file in the place of its own, to be verified or read."""
        return replace(
            self,
            file=copy.file,
            size_bytes=copy.size_bytes,
            crc=copy.crc,
            footer=copy.footer,
            blocks=1,
            copies=(),
            rolled=(),
        )

    @property
    def is_backfilled(self) -> bool:
        """Return whether its tuples were written elsewhere, past the log and the live sample."""
        return self.first_position < 0

    @property
    def is_dealt(self) -> bool:
        """Return whether rows lie in blocks with their positions, not in order of position."""
        return isinstance(self.layout, Hybrid)

    @property
    def rows(self) -> int:
        """Tuples in the file."""
        return self.stretch - self.purged

    @property
    def stretch(self) -> int:
        """Positions of the run, those that were purged among them."""
        return self.end_position - self.first_position

    @property
    def positions_text(self) -> str:
        """Return which positions are in the file, for messages."""
        return f"positions {self.first_position} to {self.end_position} (excluded)"

    @property
    def block_sizes(self) -> NDArray[np.int64]:
        """Tuples of each block, shape [blocks]; not to be written to."""
        return _sizes(self.rows, self.blocks - self.halvings, self.halvings)

    @property
    def small_blocks(self) -> NDArray[np.int64]:
        """Numbers of the parts of the divided block, the smallest first; other blocks are equal."""
        parts = self.halvings + 1 if self.halvings else 0
        return np.arange(self.blocks)[::-1][:parts]

    @property
    def has_positions(self) -> bool:
        """Return whether positions are a column of the file; else the row's place gives them."""
        return self.is_dealt or self.purged > 0

    def overlaps(self, start_us: int | None, end_us: int | None) -> bool:
        """Return whether the run may have times in [start_us, end_us); None is unbounded."""
        return (end_us is None or self.low_us < end_us) and (
            start_us is None or self.high_us >= start_us
        )


@dataclass(frozen=True, slots=True)
class PaneEntry:
    """A closed pane of a query. version rises with each replacement."""

    start_us: int
    version: int
    blob: bytes


@lru_cache(256)
def _sizes(rows: int, blocks: int, halvings: int) -> NDArray[np.int64]:
    """Of the blocks of runs that are alike, which most of a stream's are."""
    sizes = block_sizes(rows, blocks, halvings)
    sizes.flags.writeable = False
    return sizes


def schema_to_json(schema: StreamSchema) -> str:
    """The definition of a stream as the catalog keeps it."""
    tenant = {} if schema.tenant == DEFAULT_TENANT else {"tenant": schema.tenant}
    keys = [[k.columns, k.relation, k.referenced, k.within] for k in schema.foreign_keys]
    return json.dumps(
        {
            "name": schema.name,
            "columns": [[c.name, c.type.value, c.nullable] for c in schema.columns],
            "time_column": schema.time_column,
            "lateness_us": schema.lateness_us,
            "retain_us": schema.retain_us,
            "layout": layout_text(schema.layout),
            **_overload_to_json(schema.on_overload),
            "seed": schema.seed,
            **tenant,
            **({"foreign_keys": keys} if keys else {}),
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
        layout=layout_from_text(fields["layout"]),
        on_overload=OnOverload(Policy(fields.get("on_overload", "THIN")), fields.get("least")),
        seed=fields["seed"],
        tenant=fields.get("tenant", DEFAULT_TENANT),
        foreign_keys=tuple(
            ForeignKey(tuple(columns), relation, tuple(referenced), within)
            for columns, relation, referenced, within in fields.get("foreign_keys", ())
        ),
    )


def _overload_to_json(on_overload: OnOverload) -> dict[str, str]:
    """Of THIN nothing, as of streams that were made before there were others."""
    if on_overload == THINS:
        return {}
    column = on_overload.column
    said = {"on_overload": on_overload.policy.value}
    return said if column is None else {**said, "least": column}


def basics_to_json(basics: dict[str, RunBasics]) -> str:
    """The basics of a run as the catalog keeps them. Infinities become {"inf": 1} or -1."""
    return json.dumps(
        {
            name: [b.nulls, _value_to_json(b.low), _value_to_json(b.high), b.exact]
            for name, b in basics.items()
        },
        allow_nan=False,
    )


def basics_from_json(text: str) -> dict[str, RunBasics]:
    """Read what `basics_to_json` wrote."""
    return {
        name: RunBasics(nulls, _value_from_json(low), _value_from_json(high), exact)
        for name, (nulls, low, high, exact) in json.loads(text).items()
    }


def _value_to_json(value: Value) -> Value | dict[str, int]:
    if isinstance(value, float) and math.isinf(value):
        return {"inf": 1 if value > 0 else -1}
    return value


def _value_from_json(value: Value | dict[str, int]) -> Value:
    return math.inf * value["inf"] if isinstance(value, dict) else value
