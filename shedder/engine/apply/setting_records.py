"""What an operator alters of who gets what: logged, and in force as soon as it is durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shedder.archive.archive_store import Store
from shedder.archive.files.data_directory import FORMAT_ALTERED
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.records import Kind
from shedder.archive.log.setting_changes import (
    Alteration,
    BudgetAltered,
    QueryAltered,
    QuotasAltered,
    alteration_to_parts,
)
from shedder.engine.runtime.quotas import Tenants
from shedder.engine.standing_queries.stream_state import Stream
from shedder.overload.memory_pressure import Pressure
from shedder.settings import Settings

SYNOPSIS_SHARE = 4  # A quarter of the memory budget is for the synopses of standing queries.


class AlterationsInForce(ABC):
    """The part of the core that knows what an operator has said of weights, budget and quotas.

    None of it changes what becomes of a tuple, so it need not wait for the batches before it: it is
    in force when it is durable. A checkpoint may then have it before its record is below the
    checkpoint's sequence, and a replay puts it in force again, in the order of the log; but there
    is no checkpoint beyond a record that has not what the record says.

    synopsis_bytes_set: the budget of synopses that is durable; None: that of the settings.
    """

    store: Store
    commit: GroupCommit
    settings: Settings
    streams: dict[str, Stream]
    tenants: Tenants
    pressure: Pressure
    clock_us: Callable[[], int]
    synopsis_bytes_set: int | None = None
    _on_trial: tuple[int | None] | None = None  # A budget that is shared out, and not durable yet.

    @abstractmethod
    def stream_name(self, stream_id: int) -> str | None:
        """None for a stream that was dropped while its records were on the way."""

    @property
    def synopsis_bytes(self) -> int:
        """The budget of all synopses of standing queries; smaller while memory is short."""
        trial = self._on_trial
        told = self.synopsis_bytes_set if trial is None else trial[0]
        whole = self.settings.memory_bytes // SYNOPSIS_SHARE if told is None else told
        return max(whole >> self.pressure.halvings, 1)

    @contextmanager
    def trying_budget(self, synopsis_bytes: int | None) -> Iterator[None]:
        """Share out another budget, which no checkpoint knows of; the durable one afterwards."""
        self._on_trial = (synopsis_bytes,)
        try:
            yield
        finally:
            self._on_trial = None

    def alter(self, alteration: Alteration) -> None:
        """Make it durable and put it in force; returns then.

        One at a time, and nobody makes or drops queries and streams meanwhile.

        Raises:
          DiskFull, StorageFailed, Draining: nothing has changed.
        """
        self.store.allow(FORMAT_ALTERED)
        parts = alteration_to_parts(alteration, self.clock_us())
        self.commit.write(Kind.ALTERED, parts, alteration, urgent=True)

    def apply_alteration(self, alteration: Alteration) -> None:
        """Put in force what is durable. On the disk thread, or replaying, in order of the log."""
        match alteration:
            case QueryAltered(stream_id, query, weight, active):
                name = self.stream_name(stream_id)
                published = None if name is None else self.streams[name].queries.get(query)
                if published is not None:  # Else it was dropped meanwhile.
                    published.weight, published.active = weight, active
            case BudgetAltered(synopsis_bytes):
                self.synopsis_bytes_set = synopsis_bytes
            case QuotasAltered(told):
                self.tenants.tell(told)
