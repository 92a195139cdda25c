"""Admission: whether a batch may come in, by what it declares, before anybody decodes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shedder.engine.intake import Intake
from shedder.engine.tenants import check_archive
from shedder.errors import BatchTooLarge, Overloaded, QuotaExceeded, RateExceeded

if TYPE_CHECKING:
    from shedder.engine.core import Core


class Admission:
    """Safe from any thread; decides by names and sizes alone."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def admit(self, name: str, rows: int, size_bytes: int, *, waits: bool = False) -> Intake:
        """Let a batch in: by its tenant's quotas, the load, room in the queue. Nothing is counted.

        Args:
          name: of the stream. rows, size_bytes: as declared.
          waits: it stands in line, and will be asked for again: it is not offered once more then.

        Raises:
          UnknownStream. QuotaExceeded: the tenant's archive is as large as it may be.
          RateExceeded, Overloaded: not now; it says when to come back.
        """
        core = self._core
        tenant = core.stream(name).schema.tenant
        check_archive(core, tenant)
        self.admit_by_rate(name, rows, size_bytes)
        core.queues.check(tenant, core.settings.ingest_queue_bytes)
        self._admit_by_load(name, tenant, size_bytes, waits=waits)
        return core.intake(name)

    @contextmanager
    def counted(self, name: str, rows: int, size_bytes: int, *, for_good: bool) -> Iterator[None]:
        """Count a batch that is turned away inside; for_good: in the ledger, too."""
        try:
            yield
        except QuotaExceeded:
            self._refuse(name, rows)
            raise
        except Overloaded as error:
            self.turned_away(name, rows, size_bytes, error, for_good=for_good)
            raise

    def let_in(self, name: str, rows: int, size_bytes: int, *, waits: bool = False) -> None:
        """Let a batch in that has not come yet. What comes must be as declared, or `give_back`.

        Args, Raises: as `admit`; and BatchTooLarge: more rows or bytes than any batch may have.
        """
        limits = self._core.limits
        if rows > limits.rows_max or size_bytes > limits.bytes_max:
            self._refuse(name, 0)  # Nobody believes that it has so many.
            raise BatchTooLarge(
                f"a batch of {rows} rows and {size_bytes} bytes; the limits are {limits.rows_max} "
                f"and {limits.bytes_max}"
            )
        with self.counted(name, rows, size_bytes, for_good=not waits):
            self.admit(name, rows, size_bytes, waits=waits)

    def give_back(self, name: str, rows: int, size_bytes: int) -> None:
        """What was let in has not come: others may have its place."""
        intake = self._core.intakes.get(name)
        if intake is not None:
            self._core.tenants.rates.give_back(intake.schema.tenant, rows, size_bytes)
            self._core.door.give_back(name, size_bytes)

    def admit_by_rate(self, name: str, rows: int, size_bytes: int) -> None:
        """Let in what a stream's tenant may send.

        Raises:
          UnknownStream. RateExceeded: not now; it says when to come back.
        """
        core = self._core
        tenant = core.stream(name).schema.tenant
        core.tenants.admit(tenant, rows, size_bytes, core.machine.monotonic_s())

    def turned_away(
        self, name: str, rows: int, size_bytes: int, error: Overloaded, *, for_good: bool
    ) -> None:
        """A batch was not taken; for good, it counts in the ledger. Load uses up nobody's quota."""
        core = self._core
        intake = core.intakes.get(name)
        if intake is None:
            return
        by_rate, tenant = isinstance(error, RateExceeded), intake.schema.tenant
        if not by_rate:
            core.tenants.rates.give_back(tenant, rows, size_bytes)
        if for_good:
            intake.refuse(rows)
            if by_rate:
                core.tenants.refuse(tenant, rows)

    def _refuse(self, name: str, rows: int) -> None:
        """Count what was refused of a stream, if it has not been dropped meanwhile."""
        intake = self._core.intakes.get(name)
        if intake is not None:
            intake.refuse(rows)

    def _admit_by_load(self, name: str, tenant: str, size_bytes: int, *, waits: bool) -> None:
        core = self._core
        waiting = core.queues.queued_bytes(tenant) / core.queues.share(tenant)  # As if of all.
        wait_ms = core.door.wait_ms(name, size_bytes, core.machine.monotonic_s(), waiting)
        if wait_ms:
            core.meter.refused(0 if waits else size_bytes)
            error = Overloaded(
                f"more comes than can be applied; {name!r} may go on in {wait_ms} ms"
            )
            error.retry_after_ms = wait_ms
            raise error
