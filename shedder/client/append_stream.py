"""Sender thread of a producer: sends its backlog at the server's pace, as batches or summaries."""

from __future__ import annotations

import time

from shedder.client.backlog import Backlog, Waiting
from shedder.client.failures import Backoff
from shedder.client.producer import Producer
from shedder.client.source_summaries import Helper
from shedder.errors import (
    BadBatch,
    BadTimestamp,
    BatchTooLarge,
    DiskFull,
    InternalError,
    PlansChanged,
    ShedderError,
    StorageFailed,
)

FOLLOW_EVERY = 8  # While batches keep coming, so many turns for each in which rows follow.


class Sender:
    """Takes batches from a backlog, one step after the other, in a thread of its own.

    producer: sends them, and does not wait. helper: sends what they come to while the server asks
    for help, and their rows later; None: this producer does not help. found_to: batches before
    this number and row may have been sent before, by one that has crashed.
    """

    def __init__(
        self,
        producer: Producer,
        helper: Helper | None,
        backlog: Backlog,
        *,
        found_to: tuple[int, int],
    ) -> None:
        self._producer = producer
        self._helper = helper
        self._backlog = backlog
        self._found_to = found_to
        self._turns = 0
        self._follow_backoff = Backoff()
        self._follow_at_s = 0.0

    @property
    def pending(self) -> bool:
        """Return whether something is to be sent, rows that have to follow included."""
        return bool(self._backlog) or (self._helper is not None and self._helper.has_rows_to_follow)

    def run(self) -> None:
        """Send until the backlog is told to stop, or the server refuses for good."""
        backlog, backoff = self._backlog, Backoff()
        while self._wait_for_work():
            try:
                self._step()
                backoff = Backoff()
                backlog.note_trouble(None)
            except ShedderError as error:
                if not self._goes_on(error, backoff):
                    return
            except Exception as error:  # The pushing thread gets every error of this thread.
                name = self._producer.name
                said = f"sending the batches of producer {name!r} has failed: {error!r}"
                failure = InternalError(
                    f"{said}. The next of this name goes on with what is on disk"
                )
                failure.__cause__ = error
                backlog.fail(failure)
                return

    def _wait_for_work(self) -> bool:
        backlog = self._backlog
        with backlog.changed:
            backlog.changed.wait_for(lambda: backlog.stopping or self.pending)
            return not backlog.stopping

    def _goes_on(self, error: ShedderError, backoff: Backoff) -> bool:
        """Wait, and say whether to try again."""
        backlog = self._backlog
        with backlog.changed:
            if backlog.stopping:
                return False
            try:
                wait_s = backoff.wait_s(error)
            except ShedderError:
                backlog.fail(error)
                return False
            backlog.note_trouble(error)
            backlog.changed.wait_for(lambda: backlog.stopping, wait_s)
            return True

    def _step(self) -> None:
        """Send the next batch if there is room for it, else await a receipt."""
        producer, helper = self._producer, self._helper
        outbox = producer.outbox
        unsent = None if outbox.is_full else self._backlog.batch(len(outbox))
        if helper is not None and self._may_follow(helper, busy=unsent is not None):
            self._follow(helper)
        elif unsent is not None and helper is not None and self._may_help(unsent):
            self._help(helper, unsent)
        elif unsent is not None:
            producer.open()
            was_sent_before = unsent.place < self._found_to  # Perhaps by a crashed process.
            number = unsent.sequence if was_sent_before else None
            producer.send(unsent.batch, number, unsent.part)
        else:
            producer.await_receipt()
            self._got_receipt()

    def _may_help(self, unsent: Waiting) -> bool:
        """Return whether summaries of a batch are to be sent; a lost batch has none."""
        return self._producer.help_wanted and not unsent.part.skipped

    def _may_follow(self, helper: Helper, *, busy: bool) -> bool:
        """Return whether rows may follow: always when idle; now and then if no help is needed."""
        if not helper.has_rows_to_follow or len(self._producer.outbox):
            return False
        if not busy:
            return True
        self._turns += 1
        its_turn = not self._producer.help_wanted and self._turns % FOLLOW_EVERY == 0
        return its_turn and time.monotonic() >= self._follow_at_s

    def _follow(self, helper: Helper) -> None:
        """Send the oldest rows; while the server does not take them, batches go on."""
        backlog = self._backlog
        pause_s = self._follow_at_s - time.monotonic()
        if pause_s <= 0:
            try:
                helper.follow()
            except ShedderError as error:
                pause_s = self._follow_backoff.wait_s(error)
                self._follow_at_s = time.monotonic() + pause_s
            else:
                self._follow_backoff = Backoff()
                self._got_receipt()
                return
        with backlog.changed:
            backlog.changed.wait_for(lambda: backlog.stopping or backlog, pause_s)

    def _help(self, helper: Helper, unsent: Waiting) -> None:
        """Send what a batch comes to, once all before it has its receipt."""
        producer = self._producer
        if len(producer.outbox):
            producer.await_receipt()
            self._got_receipt()
            return
        batch, part = unsent.batch, unsent.part
        epoch, sequence = producer.epoch, unsent.sequence
        try:
            helper.keep(batch, epoch=epoch, sequence=sequence, part=part)
        except (DiskFull, StorageFailed):  # The next receipt says whether to try again.
            producer.note_help(wanted=False)
            return
        try:
            receipt = helper.summarise(batch, epoch=epoch, sequence=sequence, part=part)
        except (PlansChanged, BadBatch, BatchTooLarge, BadTimestamp):  # Nothing was stored.
            helper.withdraw()  # As a batch it may be taken, or else refused for good.
            producer.note_help(wanted=False)
            return
        producer.note_help(wanted=helper.wanted)
        producer.outbox.skip(receipt, batch.num_rows, part)
        self._got_receipt()

    def _got_receipt(self) -> None:
        self._backlog.got_receipt(self._producer.outbox.unacknowledged)
