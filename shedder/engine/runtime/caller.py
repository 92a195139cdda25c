"""The caller of an operation: its tenant, its scopes, and whether it may use all names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.cql.statements.table_schema import RelationSchema


class Scope(Enum):
    """What an identity may do."""

    INGEST = "ingest"
    QUERY = "query"
    DEFINE = "define"  # make, change and drop its tenant's streams; statements need QUERY, too
    ADMIN = "admin"  # everything, of all tenants


class HasSchema(Protocol):
    """Anything with the definition of a stream or table, which names the owner."""

    @property
    def schema(self) -> RelationSchema:
        """The definition, which names the tenant."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation.

    tenant: owner of the streams that the caller creates.
    sees_all: the caller may use the names of all tenants.
    """

    tenant: str = DEFAULT_TENANT
    sees_all: bool = False

    def owns(self, stream: HasSchema) -> bool:
        """Return whether the caller may use a stream with its queries and rollups, or a table."""
        return self.sees_all or stream.schema.tenant == self.tenant


OPERATOR = Caller(sees_all=True)
"""The caller of an embedded engine, and of a client with the scope admin."""
