"""A producer that does not wait for the server: what finds no room there is spilled to disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from shedder.client.connection import Connection
from shedder.client.failures import Backoff
from shedder.client.helping import Helper
from shedder.client.producer import Producer
from shedder.client.spill import Spill
from shedder.cql.query import StreamSchema
from shedder.errors import (
    BadBatch,
    BadTimestamp,
    BatchTooLarge,
    DiskFull,
    FailedPrecondition,
    InternalError,
    Overloaded,
    PlansChanged,
    SequenceGap,
    ShedderError,
    StorageFailed,
)
from shedder.queries.database import Receipt
from shedder.wire.status import retry_after_ms

MEMORY_BATCHES = 16  # As many as the server takes ahead of their receipts.
HOLD_S = 1.0  # So long a batch waits for room before it is spilled: bursts need no disk.
FOLLOW_EVERY = 8  # While batches keep coming, so many turns for each in which rows follow.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class SpillState:
    """What waits on this producer's disk."""

    batches: int
    rows: int
    size_bytes: int


class SpillingProducer:
    """Appends to one stream under a name, idempotently, and never waits for long. For one thread.

    A thread of its own sends batches in the order of their numbers, at the pace that the server
    sets. While the server is full or gone, batches go to disk, behind all that have no receipt
    yet; they are removed when the server has them. After a crash, `next_sequence` says which batch
    comes next: everything before it is stored at the server, or is on disk and will be sent.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        name: str,
        *,
        epoch: int | None,
        patience_s: float,
        spill: Path,
        helps: bool = False,
        thinning: str = "1",
    ) -> None:
        """Look up the stream, and go on with what is on disk.

        helps, thinning: see `Client.producer`.

        Raises:
          StaleEpoch: a newer incarnation has written. BadSetting: there is no such share.
          FailedPrecondition: what is on disk is of another epoch, or does not follow on what the
            server has.
          DirectoryLocked, CorruptData, StorageFailed, DiskFull: as `Spill`.
        """
        self._patience_s = patience_s
        self._inner = Producer(
            connection, stream, name, epoch=epoch, patience_s=patience_s, thinning=thinning
        )
        self._inner.patience_s = 0.0  # From now on this one waits.
        self._spill = Spill(spill, self._inner.schema, name)
        self._changed = threading.Condition()
        self._memory: deque[tuple[int, pa.RecordBatch]] = deque()
        self._failure: ShedderError | None = None
        self._trouble: ShedderError | None = None
        self._stopping = False
        self._receipts = 0
        self._turns = 0
        self._follow_backoff = Backoff()
        self._follow_at_s = 0.0
        self._helper: Helper | None = None
        try:
            self._next = self._found_to = self._go_on()
            if helps:
                self._helper = Helper(
                    connection, self._inner.schema, name, directory=spill, thinning=thinning
                )
        except BaseException:
            self._spill.close()
            raise
        self._thread = threading.Thread(
            target=self._run, name=f"shedder-producer-{name}", daemon=True
        )
        self._thread.start()

    @property
    def stream(self) -> str:
        """The stream."""
        return self._inner.stream

    @property
    def name(self) -> str:
        """The producer's name."""
        return self._inner.name

    @property
    def epoch(self) -> int:
        """Its incarnation."""
        return self._inner.epoch

    @property
    def schema(self) -> StreamSchema:
        """Of the stream."""
        return self._inner.schema

    @property
    def next_sequence(self) -> int:
        """The number that the next batch gets."""
        return self._next

    @property
    def help_wanted(self) -> bool:
        """As of `Producer`."""
        return self._inner.help_wanted

    @property
    def left_out(self) -> int:
        """As of `Producer`."""
        return self._inner.left_out

    @property
    def to_follow(self) -> SpillState:
        """Rows on disk whose summaries the server has, or is getting."""
        waiting = [] if self._helper is None else list(self._helper.waiting.waiting)
        rows = sum(spilled.rows for spilled in waiting)
        return SpillState(len(waiting), rows, sum(spilled.size_bytes for spilled in waiting))

    @property
    def spilled(self) -> SpillState:
        """What waits on disk."""
        with self._changed:
            return SpillState(len(self._spill), self._spill.rows, self._spill.size_bytes)

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        """Take rows; returns when all are on their way, or on disk.

        Args:
          data: as in `Client.push`; more than 65,536 rows become several batches.
          sequence: of the first batch; None goes on from the last one. A number that was taken
            already is not taken again.

        Returns:
          The number that the next batch gets.

        Raises:
          SchemaMismatch, BadTimestamp: these rows were not taken; those before them were.
          DiskFull, StorageFailed: the rows from `next_sequence` on were not taken.
          ShedderError: an earlier batch was refused for good; it is on disk.
        """
        for number, batch in enumerate(self._inner.conformed(data)):
            given = self._next if sequence is None else sequence + number
            if given > self._next:
                raise SequenceGap(self.name, self._next, given)
            if given == self._next:
                self._put(batch)
        return self._next

    def flush(self) -> Receipt:
        """Wait until the server has everything; the last batch's receipt (rows 0: there was none).

        Raises:
          Overloaded, Unreachable, Unavailable: no receipt has come for as long as the client's
            patience. What has none is still being sent.
          ShedderError: a batch was refused for good; it is on disk.
        """
        with self._changed:
            while self._pending:
                past = partial(self._is_past, self._receipts)
                moved = self._changed.wait_for(past, self._patience_s)
                self._raise_failure()
                if not moved:
                    said = Overloaded(f"no receipt has come for {self._patience_s:g} s")
                    raise self._trouble or said
            self._raise_failure()
            return self._inner.outbox.receipt

    def close(self) -> None:
        """Flush and end; what the server does not take stays on disk, for the next of this name.

        Raises:
          DiskFull, StorageFailed: what has no receipt could not all be spilled.
          ShedderError: a batch was refused for good; it is on disk.
        """
        try:
            self.flush()
        except ShedderError as error:
            if retry_after_ms(error) is None:
                raise
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end()

    # --- of who pushes -------------------------------------------------------------------------

    def _go_on(self) -> int:
        """Drop from disk what the server has; the number after all that is left."""
        stored = self._inner.next_sequence
        if not self._spill:
            return stored
        oldest = self._spill.waiting[0]
        if oldest.epoch != self.epoch:
            raise FailedPrecondition(
                f"{self._spill.directory} holds {len(self._spill)} batches of epoch "
                f"{oldest.epoch}, not {self.epoch}; send them first (epoch={oldest.epoch}), or "
                "move them away"
            )
        self._spill.drop_before(stored)
        if self._spill and self._spill.waiting[0].sequence != stored:
            raise FailedPrecondition(
                f"the server wants batch {stored} of producer {self.name!r}, and "
                f"{self._spill.directory} begins with {self._spill.waiting[0].sequence}: these are "
                "not of the same stream"
            )
        return self._spill.waiting[-1].sequence + 1 if self._spill else stored

    def _put(self, batch: pa.RecordBatch) -> None:
        with self._changed:
            self._raise_failure()
            if not self._spill:
                self._changed.wait_for(
                    lambda: self._failure or self._trouble or self._has_room, HOLD_S
                )
                self._raise_failure()
            if self._spill or not self._has_room:
                self._save()
                self._spill.write(batch, epoch=self.epoch, sequence=self._next)
            else:
                self._memory.append((self._next, batch))
            self._next += 1
            self._changed.notify_all()

    @property
    def _has_room(self) -> bool:
        return len(self._memory) < MEMORY_BATCHES

    def _is_past(self, receipts: int) -> bool:
        return self._failure is not None or self._receipts > receipts

    @property
    def _pending(self) -> bool:
        return bool(self._memory or self._spill or self._owes)

    @property
    def _owes(self) -> bool:
        """Whether rows have to follow their summaries."""
        return self._helper is not None and self._helper.owes

    def _save(self) -> None:
        """Put what is in memory on disk, in order: numbers on disk have no gaps."""
        while self._memory:
            sequence, batch = self._memory[0]
            self._spill.write(batch, epoch=self.epoch, sequence=sequence)
            self._memory.popleft()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        while self._thread.is_alive():
            self._inner.disconnect()  # It may be waiting for a receipt.
            self._thread.join(_LOOK_S)
        try:
            self._save()
        finally:
            self._spill.close()
            if self._helper is not None:
                self._helper.close()

    # --- of who sends --------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff()
        while self._wait_for_work():
            try:
                self._step()
                backoff = Backoff()
                self._trouble = None
            except ShedderError as error:
                if not self._goes_on(error, backoff):
                    return
            except Exception as error:  # Who pushes must hear of it, whatever it is.
                said = f"sending the batches of producer {self.name!r} has failed: {error!r}"
                failure = InternalError(
                    f"{said}. The next of this name goes on with what is on disk"
                )
                failure.__cause__ = error
                with self._changed:
                    self._fail(failure)
                return

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._pending)
            return not self._stopping

    def _goes_on(self, error: ShedderError, backoff: Backoff) -> bool:
        """Wait, and say whether to try again."""
        with self._changed:
            if self._stopping:
                return False
            try:
                wait_s = backoff.wait_s(error)
            except ShedderError:
                self._fail(error)
                return False
            self._trouble = error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping, wait_s)
            return True

    def _fail(self, error: ShedderError) -> None:
        """Nothing is sent any more, and who pushes or flushes is told why."""
        self._failure = error
        with suppress(ShedderError):  # The refusal says more, and nothing is forgotten.
            self._save()
        self._changed.notify_all()

    def _step(self) -> None:
        """Send the next batch if there is room for it, else await a receipt."""
        inner, helper = self._inner, self._helper
        unsent = None if inner.outbox.is_full else self._batch(inner.next_sequence)
        if helper is not None and self._may_follow(helper, busy=unsent is not None):
            self._follow(helper)
        elif helper is not None and unsent is not None and inner.help_wanted:
            self._help(helper, unsent)
        elif unsent is not None:
            inner.open()
            was_sent_before = inner.next_sequence < self._found_to  # By who has crashed, perhaps.
            inner.send(unsent, inner.next_sequence if was_sent_before else None)
        else:
            inner.await_receipt()
            self._got_receipt(inner.outbox.unacknowledged)

    def _may_follow(self, helper: Helper, *, busy: bool) -> bool:
        """Rows follow when nothing else is to be sent, and now and then when nobody needs help."""
        if not helper.owes or len(self._inner.outbox):
            return False
        if not busy:
            return True
        self._turns += 1
        its_turn = not self._inner.help_wanted and self._turns % FOLLOW_EVERY == 0
        return its_turn and time.monotonic() >= self._follow_at_s

    def _follow(self, helper: Helper) -> None:
        """Send the oldest rows; while the server does not take them, batches go on."""
        pause_s = self._follow_at_s - time.monotonic()
        if pause_s <= 0:
            try:
                helper.follow()
            except ShedderError as error:
                pause_s = self._follow_backoff.wait_s(error)
                self._follow_at_s = time.monotonic() + pause_s
            else:
                self._follow_backoff = Backoff()
                self._got_receipt(self._inner.outbox.unacknowledged)
                return
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._memory or self._spill, pause_s)

    def _help(self, helper: Helper, batch: pa.RecordBatch) -> None:
        """Send what a batch comes to, once all before it has its receipt."""
        inner = self._inner
        if len(inner.outbox):
            inner.await_receipt()
            self._got_receipt(inner.outbox.unacknowledged)
            return
        sequence = inner.next_sequence
        try:
            helper.keep(batch, epoch=self.epoch, sequence=sequence)
        except (DiskFull, StorageFailed):  # The next receipt says whether to try again.
            inner.help_wanted = False
            return
        try:
            receipt = helper.summarise(batch, epoch=self.epoch, sequence=sequence)
        except (PlansChanged, BadBatch, BatchTooLarge, BadTimestamp):  # Nothing was stored.
            helper.withdraw()  # As a batch it may be taken, or else refused for good.
            inner.help_wanted = False
            return
        inner.help_wanted = helper.wanted
        inner.outbox.skip(receipt)
        self._got_receipt(inner.outbox.unacknowledged)

    def _got_receipt(self, stored: int) -> None:
        """The server has all batches before this number; forget them."""
        with self._changed:
            while self._memory and self._memory[0][0] < stored:
                self._memory.popleft()
            self._spill.drop_before(stored)
            self._receipts += 1
            self._changed.notify_all()

    def _batch(self, sequence: int) -> pa.RecordBatch | None:
        """A batch by its number; None: it was not pushed yet."""
        with self._changed:
            waiting = self._spill.waiting
            at = sequence - waiting[0].sequence if waiting else 0
            if not 0 <= at < len(waiting):
                return next((batch for number, batch in self._memory if number == sequence), None)
            spilled = waiting[at]
        return self._spill.read(spilled)
