"""One life of a server: its disk, its CPU and its background take turns in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from shedder.archive.log.log_queue import Entry
from shedder.archive.log.records import Batch, Built, Idle
from shedder.archive.log.table_changes import TableChange
from shedder.engine.engine import Engine
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.tables.live_tables import NumberedChange
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import InternalError
from shedder.simulation.disk import Died, ready_us, write_us
from shedder.simulation.event_queue import Action, Agenda
from shedder.simulation.scenario import Scenario
from shedder.simulation.turn_taking import Worker
from shedder.simulation.virtual_environment import VirtualEnvironment

_WAKE_US_MIN = 1_000

Header = Batch | Built | TableChange | Idle
Sent = tuple[Header, pa.RecordBatch | None]


@dataclass(frozen=True, slots=True)
class Group:
    """Batches that one fsync made durable, and that wait to be applied.

    arrived_us: when the oldest of them came to the door.
    """

    arrived_us: int

    @classmethod
    def of(cls, entries: Sequence[Entry], zero_us: int, now_us: int) -> Group:
        """What a group commit has written just now."""
        headers = [header for header, _ in sent_in(entries)]
        arrived = min((header.arrival_us - zero_us for header in headers), default=now_us)
        return cls(arrived)


def sent_in(entries: Sequence[Entry]) -> Iterator[Sent]:
    """Yield what clients have sent, changes of tables, and idle streams; of a summary no tuples."""
    for entry in entries:
        match entry.token:
            case PendingRecord(Batch() as header, pa.RecordBatch() as batch):
                yield header, batch
            case PendingRecord(Built() as header):
                yield header, None
            case NumberedChange(header=TableChange() as change, batch=rows):
                yield change, rows
            case Idle() as idle:
                yield idle, None


class Process:
    """An engine at work. Batches wait in the engine's own queues, for the disk, then for the CPU.
    What the disk has taken is written when it is done with it; applying takes its time batch by
    batch, while others go on.

    writing: what the disk has taken. waiting: what is durable and not applied.
    """

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        machine: VirtualEnvironment,
        engine: Engine,
        *,
        durable: Callable[[Header, pa.RecordBatch | None], None],
        died: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.writing: list[Entry] = []
        self.waiting: deque[Group] = deque()
        self.is_alive = True
        self._scenario = scenario
        self._agenda = agenda
        self._machine = machine
        self._durable = durable
        self._died = died
        self._applier, self._background = Worker(), Worker()
        self._applying: Callable[[], None] | None = None
        self._in_background = False
        self._wakes_at_us = -1
        machine.use_workers(self._applier, self._background)  # Recovery has been waited for.
        for period_s, tick in machine.ticks:
            self._tick(round(1e6 * period_s), tick)

    @property
    def standings(self) -> list[QueryState]:
        """The standing queries, of all streams."""
        streams = self.engine.core.streams.values()
        return [
            standing_query.state for stream in streams for standing_query in stream.queries.values()
        ]

    @property
    def queue_bytes(self) -> int:
        """Taken at the door and not applied."""
        return self.engine.core.log_queue.in_flight_bytes + self.engine.core.meter.queue_bytes

    def oldest_us(self) -> int | None:
        """Return the arrival of the oldest durable batch that waits; None: there is none."""
        return min((group.arrived_us for group in self.waiting), default=None)

    def finish(self) -> None:
        """Whatever is being done, is done now; then it ends."""
        while self._applier.asleep_ns is not None:
            self._applier.go_on()
        while self._background.asleep_ns is not None:
            self._machine.applier.step()
            self._background.go_on()
        self.end()

    def end(self) -> None:
        """Whatever is being done, ends here."""
        self.is_alive = False
        for worker in (self._applier, self._background):
            worker.end()
        self._machine.forget_workers()

    def _tick(self, period_us: int, tick: Action) -> None:
        def again() -> None:
            tick()
            self._when(self._agenda.now_us + period_us, again)
            self.look()

        self._when(self._agenda.now_us + period_us, again)

    def begin(self) -> None:
        """Soon, begin with what waits."""
        self._when(self._agenda.now_us, self.look)

    def look(self) -> None:
        """Start queued work on the disk, the CPU and the background worker where they are free."""
        self.look_at_the_disk()
        self._look_at_the_cpu()
        self._look_at_the_background()

    def look_at_the_disk(self) -> None:
        """Begin to write what waits, if the disk is free."""
        if not self.writing and (group := self._machine.log.gather()):
            self.writing = group
            size = sum(entry.size_bytes for entry in group)
            self._when(self._stalled_us(write_us(self._scenario.machine, size)), self._written)

    def _when(self, time_us: int, action: Action) -> None:
        self._agenda.at(time_us, partial(self._if_alive, action))

    def _if_alive(self, action: Action) -> None:
        """Do it, unless the process is another one by then; it may die of it."""
        if self.is_alive:
            try:
                action()
            except Died:
                self._died()

    def _stalled_us(self, takes_us: int) -> int:
        return ready_us(self._scenario.stalls, self._agenda.now_us, takes_us)

    # --- disk ----------------------------------------------------------------------------------

    def _written(self) -> None:
        group = self.writing
        self._machine.log.commit(group)
        self.writing = []
        now_us, zero_us = self._agenda.now_us, self._agenda.zero_us
        self.waiting.append(Group.of(group, zero_us, now_us))
        for header, batch in sent_in(group):
            self._durable(header, batch)
        self.look()

    # --- CPU -----------------------------------------------------------------------------------

    def _look_at_the_cpu(self) -> None:
        if self._applying is not None:
            return
        work = self._machine.applier.waiting
        if work is None:
            self._idle()
            return
        self._applying = work
        self._do(self._applier, self._step, self._applied)

    def _do(self, worker: Worker, work: Action, then: Action) -> None:
        worker.do(work)
        self._follow(worker, then)

    def _follow(self, worker: Worker, then: Action) -> None:
        """It sleeps, until its time has passed; or it is done."""
        if worker.asleep_ns is None:
            then()
        else:
            wakes_us = self._agenda.now_us + round(worker.asleep_ns / 1e3)
            self._when(wakes_us, partial(self._go_on, worker, then))

    def _go_on(self, worker: Worker, then: Action) -> None:
        worker.go_on()
        self._follow(worker, then)

    def _applied(self) -> None:
        if isinstance(self._applying, partial):  # Else it was upkeep, not a group.
            self.waiting.popleft()
        self._applying = None
        self.look()

    def _idle(self) -> None:
        pause_s = self._step()
        now_us = self._agenda.now_us
        wakes_at_us = now_us + max(_WAKE_US_MIN, round(1e6 * pause_s))
        if not now_us < self._wakes_at_us <= wakes_at_us:
            self._wakes_at_us = wakes_at_us
            self._when(wakes_at_us, self._look_at_the_cpu)

    def _step(self) -> float:
        pause_s = self._machine.applier.step()
        if self._machine.applier.halted:
            raise InternalError(self._machine.applier.halted)
        return self._scenario.seconds if pause_s is None else pause_s

    # --- background ----------------------------------------------------------------------------

    def _look_at_the_background(self) -> None:
        """Start the next background job: one at a time, and each job needs the disk."""
        if not self._in_background and len(self._machine.later):
            self._in_background = True
            takes_us = round(1e3 * self._scenario.machine.run_ms)
            self._when(self._stalled_us(takes_us), self._work_in_background)

    def _work_in_background(self) -> None:
        self._do(self._background, self._machine.later.step, self._worked_in_background)

    def _worked_in_background(self) -> None:
        self._in_background = False
        self.look()
