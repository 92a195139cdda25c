"""Quotas of tenants, from a file and from controls, and the batches refused for a rate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from shedder.errors import BadSetting, RateExceeded
from shedder.overload.quotas import (
    KEYS,
    NO_QUOTA,
    SET_BACK,
    Quota,
    Rates,
    parse_quotas,
    quota_value,
)

_log = structlog.get_logger("shedder.tenants")


@dataclass(slots=True)
class Refused:
    """Batches that were refused for a rate, and the rows that these batches declared."""

    batches: int = 0
    rows: int = 0


@dataclass(slots=True, eq=False)
class Tenants:
    """Quotas by tenant; one that nothing is said of has none. Safe from any thread.

    path: of the tenants file; None: there is none.
    overrides: what controls have set, by tenant and key; None: no limit. It goes before the file.
    """

    path: Path | None = None
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        self._merge(self.overrides)
        return True

    def refresh_or_keep(self) -> bool:
        """As `refresh`, but a file that cannot be used leaves what was there in force."""
        try:
            return self.refresh()
        except (OSError, UnicodeDecodeError, BadSetting) as error:
            _log.error("tenants_file_not_used", path=str(self.path), error=str(error))
            return False

    def tell(self, overrides: Mapping[str, Mapping[str, Any]]) -> None:
        """Put what controls say in place of what they said."""
        self.overrides = {tenant: dict(values) for tenant, values in overrides.items() if values}
        self._merge(self.overrides)

    @contextmanager
    def trying(self, overrides: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """Go by what controls might say, which no checkpoint knows of; by what they say, then."""
        self._merge(overrides)
        try:
            yield
        finally:
            self._merge(self.overrides)

    def changed(self, tenant: str, key: str, value: str) -> dict[str, dict[str, Any]]:
        """What controls say once one of them is turned; nothing changes yet.

        Raises:
          BadSetting: it cannot be that.
        """
        overrides = {name: dict(values) for name, values in self.overrides.items()}
        own = overrides.setdefault(tenant, {})
        if value.strip().lower() == SET_BACK and key in KEYS:
            own.pop(key, None)
        else:
            own[key] = quota_value(key, value)
        return overrides

    def _merge(self, overrides: Mapping[str, Mapping[str, Any]]) -> None:
        names = self._read.keys() | overrides.keys()
        self._quotas = {
            name: replace(self._read.get(name, NO_QUOTA), **overrides.get(name, {}))
            for name in names
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
        will_retry: bool = False,
    ) -> None:
        """Let a batch in, by what it declares; will_retry: it is not offered once more then.

        cpu_ns: that it will take whatever is thinned.

        Raises:
          RateExceeded: it is over a rate of its tenant's; it says when to come back.
        """
        wait_ms = self.rates.wait_ms(
            tenant, rows, size_bytes, now_s, cpu_ns=cpu_ns, reserve=not will_retry
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
            raise RateExceeded(
                f"tenant {tenant!r} sends more than its quota of {' and '.join(limits)}; it may "
                f"go on in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )

    def refuse(self, tenant: str, rows: int) -> None:
        """A batch was refused for a rate, for good."""
        known = self.refused.setdefault(tenant, Refused())
        known.batches += 1
        known.rows += rows

    # --- durable -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """What controls have set, for checkpoints."""
        return json.dumps(self.overrides).encode()

    def restore(self, data: bytes | None) -> None:
        """The inverse."""
        if data is not None:
            self.tell(json.loads(data))
