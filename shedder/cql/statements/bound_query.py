"""A bound query: names resolved, types known, aggregates listed once each."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.cql.statements.archive_layout import Layout
from shedder.cql.statements.foreign_key import ForeignKey
from shedder.cql.statements.overload_policy import THINS, OnOverload
from shedder.cql.statements.statement import (
    ColumnDefinition,
    Contract,
    Costing,
    OrderKey,
    Output,
    ReductionClause,
    Target,
    Window,
)

DEFAULT_TENANT = "default"
"""Tenant of a stream if none is given."""

OWN_COLUMNS = frozenset({"__position", "__live", "__file", "file_row_number"})
"""What no column of a stream is named, in any case: runs have these, or get them when read."""


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """What a stream is: its columns, its event time, how long and how it is kept.

    seed: uint64; with a tuple's position it makes the tuple's random key, everywhere.
    tenant: whose it is, with all that stands on it.
    """

    name: str
    columns: tuple[ColumnDefinition, ...]
    time_column: str
    lateness_us: int
    retain_us: int | None
    layout: Layout
    seed: int
    tenant: str = DEFAULT_TENANT
    on_overload: OnOverload = THINS
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query over one stream, every expression typed.

    groups: the GROUP BY expressions. aggregates: each distinct aggregate of outputs, having and
    order, once, in order of appearance. An output's expression is built of groups (matched by
    equality), aggregates (matched by equality), literals and calls.
    columns: names of the stream's columns that any expression reads.
    """

    text: str
    schema: StreamSchema
    window: Window
    where: Expression | None
    groups: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    outputs: tuple[Output, ...]
    having: Expression | None
    order: tuple[OrderKey, ...]
    limit: int | None
    target: Target | None
    confidence: float
    contract: Contract
    weight: float
    reduction: ReductionClause | None
    columns: tuple[str, ...]
    thinning: int = 0
    costing: Costing | None = None
