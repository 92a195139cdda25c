"""The server of a world: one process after the other over one data directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from shedder.archive.commit import Entry
from shedder.archive.records import DROPPED, Batch
from shedder.engine.engine import Engine
from shedder.engine.listeners import News
from shedder.engine.stream import Stream
from shedder.errors import Draining, Overloaded, ShedderError
from shedder.queries.database import Ledger, Receipt
from shedder.settings import Settings
from shedder.simulation.agenda import Agenda
from shedder.simulation.disk import Died, VirtualDisk, image
from shedder.simulation.machine import VirtualMachine
from shedder.simulation.payload import STREAM, create
from shedder.simulation.process import Process, batches_of
from shedder.simulation.scenario import Crash, Machine, Scenario
from shedder.streams.batches import decode_stored

Durable = Callable[[Batch, pa.RecordBatch], None]
Answered = Callable[[str, News], None]


class Server:
    """What clients see: a door, which is sometimes closed.

    process: of this life; None while it is down. lives: how many there were. acknowledged: one
    past the last tuple that anybody has a receipt for. refused_batches, refused_rows, duplicate:
    since the last start, as the engine is to count them. refusals: for want of room, ever.
    problems: what must never be.
    """

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        machine: VirtualMachine,
        directory: Path,
        *,
        durable: Durable,
        answered: Answered,
    ) -> None:
        self.process: Process | None = None
        self.lives = 0
        self.acknowledged = 0
        self.refused_batches = 0
        self.refused_rows = 0
        self.duplicate = 0
        self.refusals = 0
        self.problems: list[str] = []
        self.on_down: list[Callable[[], None]] = []
        self._scenario = scenario
        self._agenda = agenda
        self._machine = machine
        self._root = directory
        self._drops = scenario.stream.on_overload.startswith("DROP")
        self._directory = directory / "life-0"
        self._durable = durable
        self._sent: dict[tuple[str, int], bytes] = {}  # What may be dropped from, whole.
        self._answered = answered
        assert machine.costs is not None
        self._costs = machine.costs
        assert isinstance(machine.files, VirtualDisk)
        self._disk = machine.files

    # --- lives ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the directory, and serve."""
        self.lives += 1
        overload = "on" if self._scenario.control == "feedback" else "off"
        settings = _settings(self._scenario.machine, overload)
        engine = Engine.open(self._directory, settings, machine=self._machine)
        if STREAM not in engine.core.streams:
            engine.execute(create(self._scenario.stream))
            for query in self._scenario.queries:
                engine.register(query.name, query.sql)
        self.process = Process(
            self._scenario,
            self._agenda,
            self._machine,
            engine,
            durable=self._whole,
            died=self._die,
        )
        for query in self._scenario.queries:
            engine.listen(query.name, partial(self._answer, query.name))
        self.process.begin()

    def crash(self, crash: Crash) -> None:
        """Die now, or at a later call of the disk."""
        if crash.after_calls is not None:
            self._disk.die_after(crash.after_calls)
        elif self.process is not None:
            self._die()

    def settle(self) -> None:
        """Finish everything that was begun, at once; the world ends."""
        self._disk.die_after(None)
        if self.process is not None:
            self.process.finish()
        self._machine.settle()

    def close(self) -> Ledger:
        """End.

        Returns:
          The ledger at the end.
        """
        ledger = self.engine.ledger(STREAM)
        self.engine.close()
        return ledger

    @property
    def engine(self) -> Engine:
        """Of this life."""
        assert self.process is not None
        return self.process.engine

    @property
    def stream(self) -> Stream:
        """Of this life."""
        return self.engine.core.stream(STREAM)

    def _die(self) -> None:
        """All state is gone; the next life begins with what is on disk."""
        process, self.process = self.process, None
        assert process is not None
        self._leave()
        process.end()
        with suppress(ShedderError):  # A file may be closed in the middle of a call.
            process.engine.core.store.close()
        for told in self.on_down:
            told()
        self._start_later(process.writing)

    def _leave(self) -> None:
        """What the next life finds is what is on disk now."""
        self._disk.die_after(None)
        died, self._directory = self._directory, self._root / f"life-{self.lives}"
        image(died, self._directory)
        self._machine.later.clear()
        self._machine.ticks.clear()

    def _start_later(self, dying: Sequence[Entry]) -> None:
        restart_us = round(1e6 * self._scenario.machine.restart_s)
        self._agenda.after(restart_us, partial(self._recover, dying))

    def _recover(self, dying: Sequence[Entry]) -> None:
        """Start again, and see whether all that was acknowledged is there.

        Args:
          dying: what was being written; how much of it is durable only the log knows.
        """
        self.refused_batches = self.refused_rows = self.duplicate = 0
        try:
            self.start()
        except Died:  # While it recovered.
            self._leave()
            self._start_later(dying)
            return
        position = self.stream.position
        for header, batch in batches_of(dying):
            last = self.engine.last_sequence(STREAM, header.producer)
            if last is not None and header.sequence <= last[1]:  # Of some, no tuple is left.
                self._whole(header, batch)
        if position < self.acknowledged:
            lost = self.acknowledged - position
            self.problems.append(f"a crash lost {lost} acknowledged tuples")

    def _whole(self, header: Batch, batch: pa.RecordBatch) -> None:
        """Tell of a durable batch as it was sent, whatever of it was dropped at the door."""
        payload = self._sent.pop((header.producer, header.sequence), None)
        if payload is not None and header.flags & DROPPED:
            batch = decode_stored(payload, self.stream.schema)
        self._durable(header, batch)

    def _answer(self, query: str, news: News) -> None:
        if self.process is not None:
            self._machine.spend(self._costs.answer_ns)
        self._answered(query, news)

    # --- the door ------------------------------------------------------------------------------

    def append(self, payload: bytes, rows: int, *, producer: str, sequence: int) -> Future[Receipt]:
        """As a client does.

        Raises:
          what the engine raises; Draining: it is down.
        """
        if self.process is None:
            raise Draining("the server is down")
        try:
            receipt = self.engine.append(
                STREAM, payload, producer=producer, epoch=0, sequence=sequence, rows=rows
            )
        except ShedderError as error:
            self.refused_batches += 1
            self.refused_rows += rows
            self.refusals += isinstance(error, Overloaded)
            raise
        if not receipt.done() and self._drops:
            self._sent[producer, sequence] = payload
        receipt.add_done_callback(self._acknowledge)
        self.process.look_at_the_disk()
        return receipt

    def set_levels(self, query: str, levels: tuple[int, ...]) -> None:
        """From where the log is now, a query's synopses read at these levels, whatever the load."""
        if self.process is not None:
            forced = range(len(levels))
            try:
                self.engine.core.submit_levels(self.stream, query, levels, forced)
            except Died:
                self._die()
            else:
                self.process.look_at_the_disk()

    def _acknowledge(self, done: Future[Receipt]) -> None:
        if done.exception() is None:
            receipt = done.result()
            self.acknowledged = max(self.acknowledged, receipt.position)
            self.duplicate += receipt.rows if receipt.duplicate else 0


@lru_cache
def _settings(machine: Machine, overload: str) -> Settings:
    """Reading the environment takes longer than many a world."""
    return Settings.load(
        memory_bytes=machine.memory_bytes,
        ingest_queue_bytes=machine.ingest_queue_bytes,
        sample_rows=machine.sample_rows,
        run_rows=machine.run_rows,
        checkpoint_seconds=machine.checkpoint_seconds,
        overload=overload,
    )
