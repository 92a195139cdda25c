"""Changed settings of streams and queries as log records: the body of ALTERED."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HEADER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class QueryAltered:
    """How much a standing query's errors count, and whether it counts.

    stream: of the query, the catalog's id. query: its name.
    """

    stream: int
    query: str
    weight: float
    active: bool


@dataclass(frozen=True, slots=True)
class BudgetAltered:
    """The budget of all synopses, in bytes; None: that of the settings."""

    synopsis_bytes: int | None


@dataclass(frozen=True, slots=True)
class RowLimitAltered:
    """The limit of the state of a row query, in bytes; None: that of the settings."""

    row_query_bytes: int | None


@dataclass(frozen=True, slots=True)
class QuotasAltered:
    """All that controls say of tenants' quotas, by tenant and key; None: no limit."""

    overrides: Mapping[str, Mapping[str, Any]]


Alteration = QueryAltered | BudgetAltered | RowLimitAltered | QuotasAltered


def alteration_to_parts(alteration: Alteration, arrival_us: int) -> list[bytes]:
    """The header and the body of a record."""
    match alteration:
        case QueryAltered(stream, query, weight, active):
            said: dict[str, object] = {"query": [stream, query, weight, active]}
        case BudgetAltered(synopsis_bytes):
            said = {"synopsis_bytes": synopsis_bytes}
        case RowLimitAltered(row_query_bytes):
            said = {"row_query_bytes": row_query_bytes}
        case QuotasAltered(overrides):
            said = {"quotas": overrides}
    return [_HEADER.pack(arrival_us), json.dumps(said).encode()]


def alteration_from_body(body: bytes) -> Alteration:
    """Read a body that `alteration_to_parts` wrote (the log has verified its checksum)."""
    [(about, value)] = json.loads(body).items()
    match about:
        case "query":
            return QueryAltered(*value)
        case "synopsis_bytes":
            return BudgetAltered(value)
        case "row_query_bytes":
            return RowLimitAltered(value)
        case _:
            assert about == "quotas", about
            return QuotasAltered(value)
