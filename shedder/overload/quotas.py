"""Quotas of tenants, and token buckets that enforce their rates."""

from __future__ import annotations

import math
import re
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from shedder.errors import BadSetting
from shedder.overload.retry_slots import Slots
from shedder.overload.token_bucket import TokenBucket
from shedder.settings import parse_bytes

# A tenant that has sent nothing for so long may send so much at once: no more than others' batches
# may have to wait for. A larger batch comes in, too, and is paid off.
BURST_S = 0.1
LONGEST_S = 3_600.0  # Longest time to retry that a refusal names, because quotas may be raised.
SET_BACK, NONE = "default", "none"
TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_COUNT_END = 1 << 63
_COUNTS = ("queries", "synopsis_bytes", "archive_bytes")


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may take; None: no limit of its own.

    queries: that stand at a time. synopsis_bytes: of all of them. cpu_ns_per_s: CPU of its
    synopses, for reading tuples; 1e9 is a core. rows_per_s, bytes_per_s: that it may send.
    weight: its share where there is not enough for all. archive_bytes: of its runs, and of tuples
    that wait to be written into them.
    """

    queries: int | None = None
    synopsis_bytes: int | None = None
    cpu_ns_per_s: float | None = None
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    weight: float = 1.0
    archive_bytes: int | None = None

    @property
    def has_rates(self) -> bool:
        """Return whether what it sends is counted."""
        return self.rows_per_s is not None or self.bytes_per_s is not None


NO_QUOTA = Quota()
KEYS = tuple(field.name for field in fields(Quota))


def quota_value(key: str, value: object) -> int | float | None:
    """One number of a quota, from a file or from a control: 1000, "64MiB", "none".

    Raises:
      BadSetting: there is no such quota, or it cannot be that; the message shows it.
    """
    if key not in KEYS:
        raise BadSetting(f"no quota {key!r}; there are {', '.join(KEYS)}")
    if isinstance(value, str) and value.strip().lower() == NONE and key != "weight":
        return None
    number = _number(key, value)
    if key in _COUNTS:
        if not 0 <= number < _COUNT_END or number != int(number):
            rule = "a whole number, at least 0 and below 2^63, or 'none'"
            raise BadSetting(f"quota {key} = {value!r}: {rule}")
        return int(number)
    if number <= 0:
        rule = "over 0" if key == "weight" else "over 0, or 'none'"
        raise BadSetting(f"quota {key} = {value!r}: a number {rule}")
    return number


def _number(key: str, value: object) -> float:
    if isinstance(value, str) and "bytes" in key:
        try:
            value = parse_bytes(value)
        except ValueError as error:
            raise BadSetting(f"quota {key} = {value!r}: {error}") from None
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadSetting(f"quota {key} = {value!r}: not a finite number")
    return number


def with_values(quota: Quota, values: Mapping[str, Any]) -> Quota:
    """A quota with some of its numbers changed.

    Raises:
      BadSetting: as `quota_value`.
    """
    changed: dict[str, Any] = {key: quota_value(key, value) for key, value in values.items()}
    return replace(quota, **changed)


def parse_quotas(text: str) -> dict[str, Quota]:
    """The quotas in a tenants file, by tenant: TOML with a table [tenant.NAME] for each.

    Raises:
      BadSetting: the text is not such a file.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"the tenants file is not TOML: {error}") from None
    tables = document.get("tenant", {})
    known = isinstance(tables, dict) and all(isinstance(each, dict) for each in tables.values())
    if document.keys() - {"tenant"} or not known:
        raise BadSetting("the tenants file holds [tenant.NAME] tables and nothing else")
    found = {}
    for name, table in tables.items():
        checked_tenant(name)
        try:
            found[name] = with_values(NO_QUOTA, table)
        except BadSetting as error:
            raise BadSetting(f"tenant {name!r}: {error}") from None
    return found


def checked_tenant(name: object) -> str:
    """Return a tenant's name, as tokens and quotas may have it.

    Raises:
      BadSetting: no tenant can have it.
    """
    if not isinstance(name, str) or not TENANT.fullmatch(name):
        raise BadSetting(
            f"a tenant cannot be named {str(name)[:80]!r}: small letters, digits, '.', '_' and "
            "'-', a letter or digit first, at most 63"
        )
    return name


class Rates:
    """Buckets of rows, bytes and CPU for each tenant that has quotas of them. Thread-safe.

    What came in t seconds is at most rate * (t + BURST_S) and one batch. Decides by what a batch
    declares, before it is decoded.
    """

    def __init__(self, quota_of: Callable[[str], Quota]) -> None:
        self._quota_of = quota_of
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._slots: dict[str, Slots] = {}

    def wait_ms(
        self,
        tenant: str,
        rows: int,
        size_bytes: int,
        now_s: float,
        *,
        cpu_ns: float = 0.0,
        reserve: bool = True,
    ) -> int:
        """Ask for room for a batch.

        Args:
          tenant: whose. rows, size_bytes: as declared. now_s: of a clock that never goes back.
          cpu_ns: that it will take whatever is thinned.
          reserve: it comes back when it is told to, and others are told another time.

        Returns:
          0: it may come. Else when to come back, and nothing was taken.
        """
        quota = self._quota_of(tenant)
        if not (quota.has_rates or cpu_ns):
            return 0
        with self._lock:
            held = [
                (self._filled(tenant, key, rate, now_s), rate, amount)
                for key, rate, amount in (
                    ("rows", quota.rows_per_s, rows),
                    ("bytes", quota.bytes_per_s, size_bytes),
                    ("cpu", quota.cpu_ns_per_s if cpu_ns else None, cpu_ns),
                )
                if rate is not None
            ]
            wait_s = max(
                (bucket.wait_s(rate=rate, wanted=1e-3 * rate) for bucket, rate, _ in held),
                default=0.0,
            )
            slots = self._slots.setdefault(tenant, Slots())
            if wait_s:
                return slots.next_ms(
                    now_s,
                    free_s=wait_s,
                    takes_s=max(amount / rate for _, rate, amount in held),
                    reserve=reserve,
                    longest_s=LONGEST_S,
                )
            if all(bucket.tokens >= rate * BURST_S for bucket, rate, _ in held):
                slots.free(now_s)  # The caller with a slot has not come.
            for bucket, _, amount in held:
                bucket.take(amount)
        return 0

    def give_back(self, tenant: str, rows: int, size_bytes: int, cpu_ns: float = 0.0) -> None:
        """A batch that was let in is not taken after all: there is no room behind the door."""
        with self._lock:
            for key, amount in (("rows", rows), ("bytes", size_bytes), ("cpu", cpu_ns)):
                bucket = self._buckets.get((tenant, key))
                if bucket is not None:
                    bucket.give_back(amount)

    def _filled(self, tenant: str, key: str, rate: float, now_s: float) -> TokenBucket:
        bucket = self._buckets.get((tenant, key))
        if bucket is None:
            bucket = self._buckets[tenant, key] = TokenBucket(rate * BURST_S, now_s)
        bucket.refill(now_s, rate=rate, burst=rate * BURST_S)
        return bucket
