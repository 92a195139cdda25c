"""SHOW TENANTS: the use of quotas by each tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.runtime.quotas import Refused
from shedder.engine.tenants.tenant_limits import archive_bytes, known_tenants, streams_of

_COUNT, _NUMBER = pa.int64(), pa.float64()
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("tenant", pa.string()),
    ("streams", _COUNT),
    ("queries", _COUNT),
    ("queries_max", _COUNT),
    ("synopsis_bytes", _COUNT),
    ("synopsis_bytes_max", _COUNT),
    ("rows_per_s_max", _NUMBER),
    ("bytes_per_s_max", _NUMBER),
    ("cpu_ns_per_s", _NUMBER),
    ("cpu_ns_per_s_max", _NUMBER),
    ("archive_bytes", _COUNT),
    ("archive_bytes_max", _COUNT),
    ("weight", _NUMBER),
    ("queued_bytes", _COUNT),
    ("refused_batches", _COUNT),
    ("refused_rows", _COUNT),
]
_SCHEMA = pa.schema(_COLUMNS)


def tenants_table(
    core: EngineState,
    shares: pa.Table,
    cpu_ns_per_s: Mapping[str, float],
    caller: Caller = OPERATOR,
) -> pa.Table:
    """Return the answer of SHOW TENANTS: a row for each tenant that the caller may see.

    shares: shares of the synopsis budget, as in EXPLAIN ALLOCATION.
    cpu_ns_per_s: CPU of synopses, by tenant.
    """
    owner = {
        query: stream.schema.tenant
        for stream in list(core.streams.values())
        for query in list(stream.queries)
    }
    taken: dict[str, int] = {}
    for query, size in zip(*(shares[c].to_pylist() for c in ("query", "size_bytes")), strict=True):
        if query in owner:
            taken[owner[query]] = taken.get(owner[query], 0) + size
    names = [name for name in known_tenants(core) if caller.sees_all or name == caller.tenant]
    rows = [
        {
            **_row(core, name),
            "synopsis_bytes": taken.get(name, 0),
            "cpu_ns_per_s": cpu_ns_per_s.get(name, 0.0),
            "queued_bytes": core.queues.queued_bytes(name),
        }
        for name in names
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _row(core: EngineState, name: str) -> dict[str, object]:
    quota, refused = core.tenants.quota(name), core.tenants.refused.get(name, Refused())
    streams = streams_of(core, name)
    return {
        "tenant": name,
        "streams": len(streams),
        "queries": sum(len(stream.queries) for stream in streams),
        "queries_max": quota.queries,
        "synopsis_bytes_max": quota.synopsis_bytes,
        "rows_per_s_max": quota.rows_per_s,
        "bytes_per_s_max": quota.bytes_per_s,
        "cpu_ns_per_s_max": quota.cpu_ns_per_s,
        "archive_bytes": archive_bytes(core, name),
        "archive_bytes_max": quota.archive_bytes,
        "weight": quota.weight,
        "refused_batches": refused.batches,
        "refused_rows": refused.rows,
    }


def tenant_facts(table: pa.Table) -> Iterator[tuple[str, str, str, str]]:
    """The rows of the control table: what each takes, and each of its quotas."""
    for row in table.to_pylist():
        name = row.pop("tenant")
        for key, value in row.items():
            if value is not None:
                yield "tenant", name, key, str(value)
