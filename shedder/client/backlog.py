"""Batches that were pushed and have no receipt: a few in memory, or all on disk, in order."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from shedder.client.disk_buffer import Spill
from shedder.errors import FailedPrecondition, ShedderError
from shedder.streams.push_parts import WHOLE, Part

MEMORY_BATCHES = 16  # As many as the server takes ahead of their receipts.
HOLD_S = 1.0  # So long a batch waits for room before it is spilled: bursts need no disk.


@dataclass(frozen=True, slots=True)
class SpillState:
    """What waits on this producer's disk."""

    batches: int
    rows: int
    size_bytes: int

    @classmethod
    def of(cls, spill: Spill) -> SpillState:
        """What is in it now."""
        waiting = list(spill.waiting)
        sizes = sum(spilled.size_bytes for spilled in waiting)
        return cls(len(waiting), sum(spilled.rows for spilled in waiting), sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A batch that waits. sequence: of its push. part: its place there."""

    sequence: int
    part: Part
    batch: pa.RecordBatch

    @property
    def place(self) -> tuple[int, int]:
        """Number and first row."""
        return self.sequence, self.part.first_row


class Backlog:
    """Queue between the pushing threads and the sending thread, with their shared state.

    changed: condition that guards all fields.
    spill: disk buffer of the batches; `close` closes it.
    receipts: number of receipts that have come.
    stopping: sending has ended, and queued batches stay.
    failure: why sending has ended for good.
    trouble: why the last try failed; the sending thread tries again.
    """

    def __init__(self, spill: Spill, epoch: int, hold_s: float = HOLD_S) -> None:
        """hold_s: time that a batch waits for room in memory before it is spilled."""
        self.changed = threading.Condition()
        self.spill = spill
        self.receipts = 0
        self.stopping = False
        self.failure: ShedderError | None = None
        self.trouble: ShedderError | None = None
        self._epoch = epoch
        self._hold_s = hold_s
        self._memory: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._memory or self.spill)

    def put(self, batch: pa.RecordBatch, sequence: int, part: Part = WHOLE) -> None:
        """Queue the next batch, with the number of its push and its place there.

        Raises:
          DiskFull, StorageFailed: the batch was not queued. ShedderError: the failure.
          FailedPrecondition: sending has ended.
        """
        with self.changed:
            self.raise_failure()
            if self.stopping:
                raise FailedPrecondition("the producer is closed")
            if not self.spill:
                self.changed.wait_for(
                    lambda: self.failure or self.trouble or self._has_room, self._hold_s
                )
                self.raise_failure()
            if self.spill or not self._has_room:
                self._save()
                self.spill.write(batch, epoch=self._epoch, sequence=sequence, part=part)
            else:
                self._memory.append(Waiting(sequence, part, batch))
            self.changed.notify_all()

    def batch(self, at: int) -> Waiting | None:
        """The batch behind as many others, the oldest first; None: it was not pushed yet."""
        with self.changed:
            waiting = self.spill.waiting
            if not waiting:
                return self._memory[at] if at < len(self._memory) else None
            if at >= len(waiting):
                return None
            spilled = waiting[at]
        return Waiting(spilled.sequence, spilled.part, self.spill.read(spilled))

    def of_push(self, sequence: int) -> list[Waiting]:
        """All batches of a push that wait.

        Raises:
          CorruptData, StorageFailed: as `Spill.read`.
        """
        with self.changed:
            found = [each for each in self._memory if each.sequence == sequence]
            return found or [  # Under the lock: a receipt removes the files.
                Waiting(each.sequence, each.part, self.spill.read(each))
                for each in self.spill.waiting
                if each.sequence == sequence
            ]

    def got_receipt(self, stored: tuple[int, int]) -> None:
        """The server has all batches before this number and row; forget them."""
        with self.changed:
            while self._memory and self._memory[0].place < stored:
                self._memory.popleft()
            self.spill.drop_before(*stored)
            self.receipts += 1
            self.changed.notify_all()

    def note_trouble(self, error: ShedderError | None) -> None:
        """Set why the last try has failed, which wakes waiting threads; None: it has not failed."""
        with self.changed:
            self.trouble = error
            if error is not None:
                self.changed.notify_all()

    def stop(self) -> None:
        """Nothing is to be sent any more."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def fail(self, error: ShedderError) -> None:
        """End sending; later pushes and flushes raise the error."""
        with self.changed:
            self.failure = error
            with suppress(ShedderError):  # The refusal says more, and nothing is forgotten.
                self._save()
            self.changed.notify_all()

    def raise_failure(self) -> None:
        """Raises the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Put on disk what is left, for the next of this name.

        Raises:
          DiskFull, StorageFailed: not all of it is there.
        """
        try:
            self._save()
        finally:
            self.spill.close()

    @property
    def _has_room(self) -> bool:
        return len(self._memory) < MEMORY_BATCHES

    def _save(self) -> None:
        """Put what is in memory on disk, in order: numbers on disk have no gaps."""
        while self._memory:
            oldest = self._memory[0]
            self.spill.write(
                oldest.batch, epoch=self._epoch, sequence=oldest.sequence, part=oldest.part
            )
            self._memory.popleft()
