"""Simulated client: sends generated batches, and behaves as its group does."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from functools import partial

import numpy as np

from shedder.cql.text.sampling_fractions import level_of
from shedder.errors import Overloaded, SequenceGap, Unavailable
from shedder.queries.answers.database_api import Receipt
from shedder.simulation.arrivals import Rate, count
from shedder.simulation.event_queue import Agenda
from shedder.simulation.scenario import Producers
from shedder.simulation.sent_batch import ClientTally, Parcel
from shedder.simulation.server import SimulatedServer
from shedder.simulation.summarising_client import Helping
from shedder.simulation.tuple_generator import Payload, stream_of
from shedder.streams.batches import encode

IN_FLIGHT = 16  # As the library's own producer.
_GREEDY_US = 10_000
DOWN_US = 100_000  # First wait after a failed call; a server that is down sends no time to retry.
LATER, LONGEST_US = 0.05, 5_000_000  # As the library's clients (client/failures.py).


class SimulatedClient:
    """Keeps batches in order, some in flight; numbers make its retries harmless."""

    def __init__(
        self,
        name: str,
        group: Producers,
        rate: Rate,
        *,
        server: SimulatedServer,
        agenda: Agenda,
        payload: Payload,
        tally: ClientTally,
        rng: np.random.Generator,
    ) -> None:
        self.name = name
        self._group = group
        self._rate = rate
        self._server = server
        self._agenda = agenda
        self._payload = payload
        self._tally = tally
        self._rng = rng
        self._outbox: deque[Parcel] = deque()
        self._in_flight: dict[int, Parcel] = {}
        self._held = 0  # Parcels that are not to be sent yet.
        self._next = 0
        self._tries = 0
        self._pauses = False
        self._ends_us = 0
        self._stream = stream_of(group.tenant)
        self._helping = Helping(
            name,
            self._stream,
            server=server,
            agenda=agenda,
            tally=tally,
            rng=rng,
            level=level_of(group.thinning),
        )
        server.on_down.append(self._take_back)

    def begin(self, ends_us: int) -> None:
        """Send from now on, until then."""
        self._ends_us = ends_us
        every_us = self._every_us
        self._agenda.after(int(self._rng.integers(1, every_us + 1)), self._tick)

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to be sent."""
        return not (
            self._held or self._outbox or self._in_flight or self._helping.has_rows_to_follow
        )

    @property
    def _every_us(self) -> int:
        return max(1, round(1e3 * self._group.every_ms))

    # --- what comes ----------------------------------------------------------------------------

    def _tick(self) -> None:
        now_us, every_us = self._agenda.now_us, self._every_us
        if now_us > self._ends_us:
            return
        mean = self._rate(now_us / 1e6) / self._group.count * every_us / 1e6
        rows = count(self._group.arrivals, mean, self._rng)
        if rows:
            parcel = self._make(rows, now_us, every_us)
            held_us = round(1e6 * self._group.slow_s)
            self._held += 1
            self._agenda.after(held_us, partial(self._put, parcel))
        self._agenda.after(every_us, self._tick)

    def _make(self, rows: int, now_us: int, every_us: int) -> Parcel:
        zero_us = self._agenda.zero_us
        start_us = zero_us + now_us - every_us - round(1e6 * self._group.disorder_s)
        batch = self._payload.draw(
            self._rng, rows, start_us=start_us, end_us=zero_us + now_us, zero_us=zero_us
        )
        self._tally.note_offered(rows)
        return Parcel(batch, encode(batch), rows, now_us)

    def _put(self, parcel: Parcel) -> None:
        self._held -= 1
        self._outbox.append(parcel)
        self._send()

    # --- what goes -----------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what may go now, in order, until something is refused."""
        while self._outbox and not self._pauses and len(self._in_flight) < IN_FLIGHT:
            parcel = self._outbox[0]
            try:
                self._send_one(parcel)
            except Overloaded as refusal:
                self._refused(parcel, 1_000 * refusal.retry_after_ms)
            except Unavailable:
                self._refused(parcel, None)

    def _send_one(self, parcel: Parcel) -> None:
        number = self._next if parcel.sequence < 0 else parcel.sequence
        is_new = parcel.sequence < 0  # Of others, the one after may well be the next.
        if is_new and self._group.gaps and self._rng.random() < self._group.gaps:
            self._send_ahead(parcel, number)
        receipt = self._deliver(parcel, number, is_new=is_new)
        self._outbox.popleft()
        self._tries = 0
        parcel.accept(number)
        self._next = max(self._next, number + 1)
        self._in_flight[number] = parcel
        receipt.add_done_callback(partial(self._acknowledged, parcel))

    def _deliver(self, parcel: Parcel, number: int, *, is_new: bool) -> Future[Receipt]:
        """As rows, all or some, or as a summary; once it has a number, always in the same way."""
        if is_new:
            wants_help = self._server.asks_help
            parcel.choose_form(summarised=wants_help and self._group.helps)
            if wants_help and not parcel.summarised:
                self._thin(parcel)
        if parcel.summarised:
            return self._helping.send(parcel, number)
        return self._append(parcel, number)

    def _append(self, parcel: Parcel, number: int) -> Future[Receipt]:
        gone = 0 if parcel.left_out is None else parcel.left_out.rows
        return self._server.append(
            self._stream,
            parcel.payload if parcel.sent is None else parcel.sent,
            parcel.rows - gone,
            producer=self.name,
            sequence=number,
            left_out=parcel.left_out,
            whole=parcel.payload,
        )

    def _thin(self, parcel: Parcel) -> None:
        """Leave rows out by chance, once."""
        level = level_of(self._group.thinning)
        if not level or parcel.sent is not None:
            return
        kept = self._rng.random(parcel.rows) < 2.0**-level
        if not kept.all():
            parcel.thin(kept)

    def _send_ahead(self, parcel: Parcel, number: int) -> None:
        """Out of order: the one after the next first, which must be refused."""
        try:
            self._append(parcel, number + 1)
        except SequenceGap:
            return
        self._server.problems.append(f"{self.name} left a gap before {number + 1}, unnoticed")

    def _refused(self, parcel: Parcel, hint_us: int | None) -> None:
        self._tally.note_refused()
        waited_us = self._agenda.now_us - parcel.born_us
        if parcel.sequence < 0 and waited_us > 1e6 * self._group.patience_s:
            self._outbox.popleft()  # It never had a number, so nothing will be missed.
            self._tally.note_given_up(parcel.rows)
        self._pauses = True
        self._tries += 1
        self._agenda.after(self._pause(hint_us), self._go_on)

    def _pause(self, hint_us: int | None) -> int:
        return pause_us(self._group.retry, hint_us, self._tries, self._rng)

    def _go_on(self) -> None:
        self._pauses = False
        self._send()

    # --- what comes back -----------------------------------------------------------------------

    def _acknowledged(self, parcel: Parcel, done: Future[Receipt]) -> None:
        if self._in_flight.pop(parcel.sequence, None) is None:
            return
        done.result()  # Nothing in this world makes the log fail.
        self._tally.note_acknowledged(parcel.rows, self._agenda.now_us - parcel.born_us)
        if parcel.summarised:
            self._helping.add_to_follow(parcel)
        if self._group.duplicates and self._rng.random() < self._group.duplicates:
            self._agenda.after(self._every_us, partial(self._repeat, parcel))
        self._agenda.after(0, self._send)

    def _repeat(self, parcel: Parcel) -> None:
        """Once more, as one does whose acknowledgement got lost."""
        try:
            self._deliver(parcel, parcel.sequence, is_new=False)
            self._tally.note_repeated(parcel.rows)
        except (Overloaded, Unavailable):
            self._tally.note_refused()

    def _take_back(self) -> None:
        """The server is down: what it has not acknowledged is sent again, in order."""
        again = [self._in_flight[number] for number in sorted(self._in_flight)]
        self._in_flight.clear()
        self._outbox.extendleft(reversed(again))
        if not self._pauses:
            self._pauses = True
            self._tries += 1
            self._agenda.after(self._pause(None), self._go_on)


def pause_us(retry: str, hint_us: int | None, tries: int, rng: np.random.Generator) -> int:
    """Return how long a client waits after `tries` refusals in a row, in microseconds.

    The pause is that of the library's clients: at least the server's hint, and longer each time.
    """
    if retry == "greedy":
        return _GREEDY_US
    longer = min(1 << min(tries - 1, 16), 8)
    least_us = min(DOWN_US * longer, LONGEST_US) if hint_us is None else hint_us
    later = LATER * (1 if hint_us is None else longer)
    return round(least_us * rng.uniform(1.0, 1.0 + later))
