"""Tenants: their quotas, from a file and from controls, and what they take of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from shedder.cql.query import DEFAULT_TENANT
from shedder.engine.ownership import OPERATOR, Asker, own_streams
from shedder.errors import BadSetting, QuotaExceeded, RateExceeded, UnknownTenant
from shedder.overload.quotas import (
    KEYS,
    NO_QUOTA,
    SET_BACK,
    Quota,
    Rates,
    parse_quotas,
    quota_value,
)

if TYPE_CHECKING:
    from shedder.engine.core import Core
    from shedder.engine.stream import Stream

_log = structlog.get_logger("shedder.tenants")
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


@dataclass(slots=True)
class Refused:
    """What was refused for a rate: batches, and the rows that they declared."""

    batches: int = 0
    rows: int = 0


@dataclass(slots=True, eq=False)
class Tenants:
    """Quotas by tenant; one that nothing is said of has none. Safe from any thread.

    path: of the tenants file; None: there is none. told: what controls have set, which goes before
    the file; by tenant and key, None for no limit.
    """

    path: Path | None = None
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: dict[str, Refused] = field(default_factory=dict)
    rates: Rates = field(init=False)
    _read: dict[str, Quota] = field(default_factory=dict)
    _stamp: tuple[int, int] = (-1, -1)
    _quotas: dict[str, Quota] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file.

        Raises:
          BadSetting: it cannot be read, or is no tenants file.
        """
        self.rates = Rates(self.quota)
        try:
            self.refresh()
        except OSError as error:
            raise BadSetting(f"cannot read the tenants file {str(self.path)!r}: {error}") from None

    def quota(self, tenant: str) -> Quota:
        """Of a tenant."""
        return self._quotas.get(tenant, NO_QUOTA)

    @property
    def synopsis_bytes(self) -> dict[str, int]:
        """The quotas of bytes, of the tenants that have one."""
        return {
            name: quota.synopsis_bytes
            for name, quota in self._quotas.items()
            if quota.synopsis_bytes is not None
        }

    @property
    def named(self) -> set[str]:
        """Those of whom something is said."""
        return set(self._quotas)

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether it has."""
        if self.path is None:
            return False
        stat = self.path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp == self._stamp:
            return False
        self._read = parse_quotas(self.path.read_text())
        self._stamp = stamp
        self._merge(self.told)
        return True

    def refresh_or_keep(self) -> bool:
        """As `refresh`, but a file that cannot be used leaves what was there in force."""
        try:
            return self.refresh()
        except (OSError, UnicodeDecodeError, BadSetting) as error:
            _log.error("tenants_file_not_used", path=str(self.path), error=str(error))
            return False

    def tell(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Put what controls say in place of what they said."""
        self.told = {tenant: dict(values) for tenant, values in told.items() if values}
        self._merge(self.told)

    @contextmanager
    def trying(self, told: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """Go by what controls might say, which no checkpoint knows of; by what they say, then."""
        self._merge(told)
        try:
            yield
        finally:
            self._merge(self.told)

    def changed(self, tenant: str, key: str, value: str) -> dict[str, dict[str, Any]]:
        """What controls say once one of them is turned; nothing changes yet.

        Raises:
          BadSetting: it cannot be that.
        """
        told = {name: dict(values) for name, values in self.told.items()}
        own = told.setdefault(tenant, {})
        if value.strip().lower() == SET_BACK and key in KEYS:
            own.pop(key, None)
        else:
            own[key] = quota_value(key, value)
        return told

    def _merge(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        names = self._read.keys() | told.keys()
        self._quotas = {
            name: replace(self._read.get(name, NO_QUOTA), **told.get(name, {})) for name in names
        }

    # --- at the door ---------------------------------------------------------------------------

    def admit(
        self,
        tenant: str,
        rows: int,
        size_bytes: int,
        now_s: float,
        *,
        cpu_ns: float = 0.0,
        waits: bool = False,
    ) -> None:
        """Let a batch in, by what it declares; waits: it is not offered once more then.

        cpu_ns: that it will take whatever is thinned.

        Raises:
          RateExceeded: it is over a rate of its tenant's; it says when to come back.
        """
        wait_ms = self.rates.wait_ms(
            tenant, rows, size_bytes, now_s, cpu_ns=cpu_ns, books=not waits
        )
        if wait_ms:
            quota = self.quota(tenant)
            limits = [
                f"{rate:,.0f} {unit}/s"
                for rate, unit in (
                    (quota.rows_per_s, "rows"),
                    (quota.bytes_per_s, "bytes"),
                    (quota.cpu_ns_per_s if cpu_ns else None, "ns of CPU that cannot be thinned"),
                )
                if rate is not None
            ]
            error = RateExceeded(
                f"tenant {tenant!r} sends more than its quota of {' and '.join(limits)}; it may "
                f"go on in {wait_ms} ms"
            )
            error.retry_after_ms = wait_ms
            raise error

    def refuse(self, tenant: str, rows: int) -> None:
        """A batch was refused for a rate, for good."""
        known = self.refused.setdefault(tenant, Refused())
        known.batches += 1
        known.rows += rows

    # --- durable -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """What controls have set, for checkpoints."""
        return json.dumps(self.told).encode()

    def restore(self, data: bytes | None) -> None:
        """The inverse."""
        if data is not None:
            self.tell(json.loads(data))


def known_tenants(core: Core) -> list[str]:
    """Who has a stream, or a quota; and the default one."""
    owners = {stream.schema.tenant for stream in list(core.streams.values())}
    return sorted({DEFAULT_TENANT, *owners, *core.tenants.named})


def check_tenant(core: Core, name: str) -> None:
    """Raise UnknownTenant unless it has a stream or a quota."""
    known = known_tenants(core)
    if name not in known:
        raise UnknownTenant(name, known)


def check_queries(core: Core, tenant: str) -> None:
    """Whether a tenant may have one more standing query.

    Raises:
      QuotaExceeded: it has as many as it may.
    """
    most = core.tenants.quota(tenant).queries
    stand = sum(len(stream.queries) for stream in _streams_of(core, tenant))
    if most is not None and stand >= most:
        raise QuotaExceeded(
            f"tenant {tenant!r} has {stand} standing queries, its quota is {most}; drop one first"
        )


def check_archive(core: Core, tenant: str) -> None:
    """Whether a tenant's archive may grow.

    Raises:
      QuotaExceeded: it has as many bytes as it may.
    """
    most = core.tenants.quota(tenant).archive_bytes
    if most is None:
        return
    there = archive_bytes(core, tenant)
    if there >= most:
        raise QuotaExceeded(
            f"tenant {tenant!r} has {there:,} bytes in the archive, its quota is {most:,}; shorten "
            "RETAIN, PURGE what was deleted, or drop a stream"
        )


def archive_bytes(core: Core, tenant: str) -> int:
    """What a tenant's runs, and the tuples that wait to be written into them, take."""
    store = core.store
    return sum(
        store.runs_bytes(stream.id) + store.tail_bytes(stream.id)
        for stream in _streams_of(core, tenant)
    )


def _streams_of(core: Core, tenant: str) -> list[Stream]:
    return own_streams(core, Asker(tenant))


def tenants_table(
    core: Core, shares: pa.Table, cpu_ns_per_s: Mapping[str, float], asker: Asker = OPERATOR
) -> pa.Table:
    """SHOW TENANTS: a row for each that somebody may see.

    shares: of the budget of synopses, as EXPLAIN ALLOCATION has them. cpu_ns_per_s: of synopses, by
      tenant.
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
    names = [name for name in known_tenants(core) if asker.sees_all or name == asker.tenant]
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


def _row(core: Core, name: str) -> dict[str, object]:
    quota, refused = core.tenants.quota(name), core.tenants.refused.get(name, Refused())
    streams = _streams_of(core, name)
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
