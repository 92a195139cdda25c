"""Checks of a tenant against its quotas: standing queries and archive bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.caller import Caller
from shedder.engine.tenants.access_control import own_streams
from shedder.errors import QuotaExceeded, UnknownTenant

if TYPE_CHECKING:
    from shedder.engine.standing_queries.stream_state import Stream


def known_tenants(core: EngineState) -> list[str]:
    """Return the tenants that have a stream or a quota, and the default tenant."""
    owners = {stream.schema.tenant for stream in list(core.streams.values())}
    owners |= {table.schema.tenant for table in core.tables.values()}
    return sorted({DEFAULT_TENANT, *owners, *core.tenants.named})


def check_tenant(core: EngineState, name: str) -> None:
    """Raise UnknownTenant unless the tenant has a stream or a quota."""
    known = known_tenants(core)
    if name not in known:
        raise UnknownTenant(name, known)


def check_queries(core: EngineState, tenant: str) -> None:
    """Check that a tenant may have one more standing query.

    Raises:
      QuotaExceeded: the tenant has reached its quota of queries.
    """
    most = core.tenants.quota(tenant).queries
    streams = streams_of(core, tenant)
    rows = {each.name for stream in streams for each in core.rows.of_stream(stream.id)}
    stand = sum(len(stream.queries) for stream in streams) + len(rows)
    if most is not None and stand >= most:
        raise QuotaExceeded(
            f"tenant {tenant!r} has {stand} standing queries, its quota is {most}; drop one first"
        )


def check_archive(core: EngineState, tenant: str) -> None:
    """Check that a tenant's archive may grow.

    Raises:
      QuotaExceeded: the tenant has reached its quota of archive bytes.
    """
    most = core.tenants.quota(tenant).archive_bytes
    if most is None:
        return
    there = archive_bytes(core, tenant)
    if there >= most:
        raise QuotaExceeded(
            f"tenant {tenant!r} has {there:,} bytes in the archive, its quota is {most:,}; shorten "
            "RETAIN, PURGE what was deleted, or drop a stream or a table"
        )


def archive_bytes(core: EngineState, tenant: str) -> int:
    """Return the bytes of a tenant's runs, of its tuples in no run yet, and of its tables."""
    store = core.store
    streams = sum(
        store.runs_bytes(stream.id) + store.tail_bytes(stream.id)
        for stream in streams_of(core, tenant)
    )
    tables = (table for table in core.tables.values() if table.schema.tenant == tenant)
    return streams + sum(table.rows.size_bytes for table in tables)


def streams_of(core: EngineState, tenant: str) -> list[Stream]:
    """Return the streams of one tenant."""
    return own_streams(core, Caller(tenant))
