"""Admission control: accepts or refuses a batch by its declared size, before it is decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.stream_intake import Intake
from shedder.engine.maintenance.run_cutter import TAILS_SHARE
from shedder.engine.tenants.tenant_limits import check_archive
from shedder.errors import (
    BatchTooLarge,
    Overloaded,
    QuotaExceeded,
    RateExceeded,
    ShedderError,
    UnknownStream,
)
from shedder.overload.retry_slots import Slots

RUN_S = 1.0  # Seconds to write a run; the progress of a write is not known.


class Admission:
    """Safe from any thread; decides by names and sizes alone."""

    def __init__(self, core: EngineState) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._slots: dict[str, Slots] = {}  # Retry times of refused calls, by the full resource.

    def admit(self, name: str, rows: int, size_bytes: int, *, will_retry: bool = False) -> Intake:
        """Let a batch in: by its tenant's quotas, the load, room in the queue. Nothing is counted.

        Args:
          name: of the stream. rows, size_bytes: as declared.
          will_retry: the batch waits in line and asks again; its load is offered once.

        Raises:
          UnknownStream. QuotaExceeded: the tenant's archive is as large as it may be.
          RateExceeded, Overloaded: not now; it says when to come back.
        """
        core = self._core
        tenant = core.stream(name).schema.tenant
        check_archive(core, tenant)
        self.admit_by_rate(name, rows, size_bytes, will_retry=will_retry)
        self._check_share(tenant, size_bytes, will_retry=will_retry)
        self._admit_by_load(name, tenant, size_bytes, will_retry=will_retry)
        self._admit_by_cpu(name, rows, size_bytes, will_retry=will_retry)
        try:
            self.check_room(size_bytes, will_retry=will_retry)
        except Overloaded:
            self._give_back_doors(name, rows, size_bytes)
            raise
        return self.intake(name)

    def intake(self, name: str) -> Intake:
        """The door of a stream, if there is room behind it.

        Raises:
          UnknownStream, Overloaded. FailedPrecondition: it is a view.
        """
        self._core.check_no_view(name)
        intake = self._core.intakes.get(name)
        if intake is None:
            self._core.stream(name)  # Its error says what of this name there is.
            raise UnknownStream(name, list(self._core.intakes))
        self.check_room()
        return intake

    @contextmanager
    def counted(self, name: str, rows: int, size_bytes: int, *, final: bool) -> Iterator[None]:
        """Count a batch that is turned away inside; final: in the ledger, too."""
        try:
            yield
        except QuotaExceeded:
            self._refuse(name, rows)
            raise
        except Overloaded as error:
            self.turned_away(name, rows, size_bytes, error, final=final)
            raise

    def let_in(self, name: str, rows: int, size_bytes: int, *, will_retry: bool = False) -> None:
        """Let a batch in that has not come yet. What comes must be as declared, or `give_back`.

        Args, Raises: as `admit`; and BatchTooLarge: more rows or bytes than any batch may have.
        """
        self.check_size(name, rows, size_bytes)
        with self.counted(name, rows, size_bytes, final=not will_retry):
            self.admit(name, rows, size_bytes, will_retry=will_retry)

    def check_size(self, name: str, rows: int, size_bytes: int) -> None:
        """Check what a batch declares, before it is charged to anything.

        Raises:
          BatchTooLarge: more rows or bytes than any batch may have.
        """
        limits = self._core.limits
        if rows > limits.rows_max or size_bytes > limits.bytes_max:
            self._refuse(name, 0)  # The declared number is not trusted.
            raise BatchTooLarge(
                f"a batch of {rows} rows and {size_bytes} bytes; the limits are {limits.rows_max} "
                f"and {limits.bytes_max}"
            )

    @contextmanager
    def giving_back(self, name: str, rows: int, size_bytes: int) -> Iterator[None]:
        """Give back the rows and the quota of a batch that is refused for its content.

        The bytes stay charged to the admission rate, because the server has received and decoded
        them.
        """
        try:
            yield
        except Overloaded:
            raise  # `counted` gives back rows and quota.
        except ShedderError:
            self.give_back_rate(name, rows, size_bytes)
            self._core.cpu_door.give_back(name, rows)
            raise

    def give_back(self, name: str, rows: int, size_bytes: int) -> None:
        """What was let in has not come: others may have its place."""
        intake = self._core.intakes.get(name)
        if intake is not None:
            self._give_back_rates(name, intake.schema.tenant, rows, size_bytes)
            self._give_back_doors(name, rows, size_bytes)

    def give_back_rate(self, name: str, rows: int, size_bytes: int) -> None:
        """Restore the quota of a tenant whose admitted batch is refused for its content."""
        intake = self._core.intakes.get(name)
        if intake is not None:
            self._give_back_rates(name, intake.schema.tenant, rows, size_bytes)

    def admit_by_rate(
        self, name: str, rows: int, size_bytes: int, *, will_retry: bool = False
    ) -> None:
        """Let in what a stream's tenant may send.

        Raises:
          UnknownStream. RateExceeded: not now; it says when to come back.
        """
        core = self._core
        tenant = core.stream(name).schema.tenant
        core.tenants.admit(
            tenant,
            rows,
            size_bytes,
            core.machine.monotonic_s(),
            cpu_ns=core.cpu_door.pinned_ns(name, rows),
            will_retry=will_retry,
        )

    def turned_away(
        self, name: str, rows: int, size_bytes: int, error: Overloaded, *, final: bool
    ) -> None:
        """Note a refused batch; the ledger counts it if for_good. Refusals by load use no quota."""
        core = self._core
        intake = core.intakes.get(name)
        if intake is None:
            return
        by_rate, tenant = isinstance(error, RateExceeded), intake.schema.tenant
        if not by_rate:
            self._give_back_rates(name, tenant, rows, size_bytes)
        if final:
            intake.refuse(rows)
            if by_rate:
                core.tenants.refuse(tenant, rows)

    def check_room(self, size_bytes: int = 0, *, will_retry: bool = False) -> None:
        """Check that there is room for size_bytes more, from any producer.

        Raises:
          Overloaded: there is none; it says when there will be some, as things go now.
        """
        core, meter = self._core, self._core.meter
        most, queued, ahead = (
            core.settings.queue_bytes_max,
            meter.queue_bytes,
            core.log_queue.in_flight_bytes,
        )
        if queued > most:
            raise self._full(
                f"{queued} bytes are durable and wait to be applied; the limit is {most}",
                "queue",
                free_s=meter.apply_s(queued - most),
                takes_s=meter.apply_s(size_bytes),
                reserve=not will_retry,
            )
        if core.pressure.full and queued:
            raise self._full(
                "memory is at its limit; a batch comes in when no other one waits",
                "memory",
                free_s=meter.apply_s(queued),
                takes_s=meter.apply_s(size_bytes),
                reserve=not will_retry,
            )
        if ahead and ahead + size_bytes > most:
            raise self._full(
                f"{ahead} bytes wait for the disk; {size_bytes} more are over the limit of {most}",
                "disk",
                free_s=meter.store_s(ahead + size_bytes - most),
                takes_s=meter.store_s(size_bytes),
                reserve=not will_retry,
            )
        unwritten = core.store.tail_bytes() + queued + ahead  # All of it will be in tails.
        if unwritten > core.settings.memory_bytes // TAILS_SHARE:
            raise self._full(
                f"{unwritten} bytes wait to be written into runs",
                "tails",
                free_s=RUN_S,
                takes_s=meter.store_s(size_bytes),
                reserve=not will_retry,
            )

    def _check_share(self, tenant: str, size_bytes: int, *, will_retry: bool) -> None:
        """Raise Overloaded where a tenant has its share of the queue's room already."""
        core = self._core
        queued = core.queues.queued_bytes(tenant)
        share_bytes = core.queues.share(tenant) * core.settings.queue_bytes_max
        if queued <= share_bytes:
            return
        # Batches of all tenants are applied in their order: of each byte of its own, so many.
        of_all = max(core.meter.queue_bytes + core.log_queue.in_flight_bytes, queued) / queued
        raise self._full(
            f"{queued} bytes of tenant {tenant!r} wait to be applied; its share of the queue is "
            f"{share_bytes:.0f}",
            f"share of {tenant}",
            free_s=core.meter.apply_s((queued - share_bytes) * of_all),
            takes_s=core.meter.apply_s(size_bytes * of_all),
            reserve=not will_retry,
        )

    def _full(
        self, message: str, what: str, *, free_s: float, takes_s: float, reserve: bool
    ) -> Overloaded:
        """Build the refusal for a full resource; each refused call gets a retry time of its own."""
        with self._lock:
            slots = self._slots.setdefault(what, Slots())
            now_s = self._core.machine.monotonic_s()
            wait_ms = slots.next_ms(now_s, free_s=free_s, takes_s=takes_s, reserve=reserve)
        return Overloaded(message, retry_after_ms=wait_ms)

    def _refuse(self, name: str, rows: int) -> None:
        """Count what was refused of a stream, if it has not been dropped meanwhile."""
        intake = self._core.intakes.get(name)
        if intake is not None:
            intake.refuse(rows)

    def _admit_by_load(self, name: str, tenant: str, size_bytes: int, *, will_retry: bool) -> None:
        core = self._core
        waiting = core.queues.queued_bytes(tenant) / core.queues.share(tenant)  # As if of all.
        wait_ms = core.door.wait_ms(
            name,
            size_bytes,
            core.machine.monotonic_s(),
            waiting,
            drain_s=core.meter.apply_s,
            reserve=not will_retry,
        )
        if wait_ms:
            core.meter.refused(0 if will_retry else size_bytes)
            raise Overloaded(
                f"more comes than can be applied; {name!r} may go on in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )

    def _admit_by_cpu(self, name: str, rows: int, size_bytes: int, *, will_retry: bool) -> None:
        core = self._core
        wait_ms = core.cpu_door.wait_ms(
            name, rows, core.machine.monotonic_s(), reserve=not will_retry
        )
        if wait_ms:
            core.door.give_back(name, size_bytes)
            raise Overloaded(
                f"what cannot be thinned of {name!r} takes more CPU than its tenant's share; "
                f"it may go on in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )

    def _give_back_doors(self, name: str, rows: int, size_bytes: int) -> None:
        self._core.door.give_back(name, size_bytes)
        self._core.cpu_door.give_back(name, rows)

    def _give_back_rates(self, name: str, tenant: str, rows: int, size_bytes: int) -> None:
        cpu_ns = self._core.cpu_door.pinned_ns(name, rows)
        self._core.tenants.rates.give_back(tenant, rows, size_bytes, cpu_ns)
