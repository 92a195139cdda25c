"""Simulated client that sends summaries while the server asks for help, and the rows later."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import numpy as np

from shedder.engine.ingest.expected_rows import rows_name
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.errors import Overloaded, PlansChanged, Unavailable
from shedder.queries.answers.database_api import Receipt
from shedder.simulation.event_queue import Agenda
from shedder.simulation.sent_batch import ClientTally, Parcel
from shedder.simulation.server import SimulatedServer

_RANKS = 1 << 61  # As the library's: no two builders keep the same.
_FOLLOW_US = 20_000  # Between two batches of rows that follow, and between two tries.


class Helping:
    """What one client summarises, and the rows that are to follow for the archive.

    As the library's helper, without its disk: rows are to follow from when the summary is
    acknowledged. They are sent under a name of their own, one batch after the other, until they
    have a receipt.
    """

    def __init__(
        self,
        name: str,
        stream: str,
        *,
        server: SimulatedServer,
        agenda: Agenda,
        tally: ClientTally,
        rng: np.random.Generator,
        level: int = 0,
    ) -> None:
        """level: at which it reads, where the server does not read less."""
        self._level = level
        self._name = name
        self._rows_name = rows_name(name)
        self._stream = stream
        self._server = server
        self._agenda = agenda
        self._tally = tally
        self._rng = rng
        self._plans: Plans | None = None
        self._to_follow: deque[Parcel] = deque()
        self._next = 0
        self._in_flight = False
        self._looks = False
        server.on_down.append(self._take_back)

    @property
    def has_rows_to_follow(self) -> bool:
        """Return whether rows are still to follow."""
        return bool(self._to_follow)

    def send(self, parcel: Parcel, sequence: int) -> Future[Receipt]:
        """Send what a parcel comes to, under its own number.

        Raises:
          what `SimulatedServer.merge` raises.
        """
        if self._plans is None:
            self._plans = self._server.plans(self._stream).thinned(self._level)
        try:
            return self._merge(parcel, sequence, self._plans)
        except PlansChanged:  # Nothing was stored.
            self._plans = self._server.plans(self._stream).thinned(self._level)
            return self._merge(parcel, sequence, self._plans)

    def _merge(self, parcel: Parcel, sequence: int, plans: Plans) -> Future[Receipt]:
        builder = Summariser(plans, int(self._rng.integers(_RANKS)))
        builder.add(parcel.batch)
        return self._server.merge(
            self._stream,
            builder.summaries().to_bytes(),
            payload=parcel.payload,
            rows=parcel.rows,
            producer=self._name,
            sequence=sequence,
        )

    def add_to_follow(self, parcel: Parcel) -> None:
        """Its summary is acknowledged: the rows follow once no more help is wanted."""
        self._to_follow.append(parcel)
        if not self._looks:
            self._looks = True
            self._agenda.after(_FOLLOW_US, self._look)

    def _look(self) -> None:
        """Send the oldest rows that are to follow, if they may go now; look again later."""
        if self._to_follow and not (self._in_flight or self._server.asks_help):
            with suppress(Overloaded, Unavailable):
                self._follow()
        self._looks = bool(self._to_follow)
        if self._looks:
            self._agenda.after(_FOLLOW_US, self._look)

    def _follow(self) -> None:
        oldest = self._to_follow[0]
        receipt = self._server.append(
            self._stream,
            oldest.payload,
            oldest.rows,
            producer=self._rows_name,
            sequence=self._next,
            summarised=True,
        )
        self._in_flight = True
        receipt.add_done_callback(partial(self._followed, oldest))

    def _followed(self, parcel: Parcel, done: Future[Receipt]) -> None:
        if self._in_flight and self._to_follow[0] is parcel:
            done.result()
            self._in_flight = False
            self._to_follow.popleft()
            self._tally.note_followed(parcel.rows)
            self._next += 1

    def _take_back(self) -> None:
        """The server is down: what has no receipt is sent again, under the same number."""
        self._in_flight = False
