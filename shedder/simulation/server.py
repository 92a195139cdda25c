"""The server of a world: one process after the other over one data directory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from shedder.archive.files.file_system import Bytes
from shedder.archive.log.log_queue import Entry
from shedder.archive.log.records import DROPPED, Batch, Built, Idle, RecordType
from shedder.archive.log.table_changes import TableChange, body_of
from shedder.engine.admission.summary_ingest import append_summaries, plans_now
from shedder.engine.apply.level_records import submit_levels
from shedder.engine.controls.table_pushes import upsert
from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.engine.runtime.caller import Caller
from shedder.engine.runtime.subscribers import AnswerUpdate
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import NumberedChange
from shedder.errors import Draining, Overloaded, ShedderError
from shedder.queries.answers.database_api import Ledger, Receipt
from shedder.settings import Settings
from shedder.simulation.disk import Died, VirtualDisk, image
from shedder.simulation.event_queue import Agenda
from shedder.simulation.process import Header, Process, sent_in
from shedder.simulation.scenario import Crash, Scenario, ScenarioMachine, Tenant
from shedder.simulation.tuple_generator import NO_TUPLES, STREAM, TABLE, create, stream_of
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import decode_stored
from shedder.streams.dropped_counts import Dropped

Durable = Callable[[str, Header, pa.RecordBatch], None]
Answered = Callable[[str, AnswerUpdate], None]
_Number = tuple[str, str, int]  # Stream, producer, sequence.
_ANSWERS_PER_PANE = 1.0  # Folding in a pane takes as long as answering from one.


@dataclass(slots=True)
class ClientCounts:
    """Counts of what the clients of one stream have seen.

    acknowledged: one past the last tuple with a receipt.
    taken: tuples that panes must contain, because they have a receipt.
    refused_batches, refused_rows, duplicate: counted since the last start, as the engine does.
    """

    acknowledged: int = 0
    taken: int = 0
    refused_batches: int = 0
    refused_rows: int = 0
    duplicate: int = 0

    def acknowledge(self, receipt: Receipt, *, followed: bool) -> None:
        """One more receipt; followed: a summary of the rows was acknowledged before."""
        self.acknowledged = max(self.acknowledged, receipt.position)
        if receipt.duplicate:
            self.duplicate += receipt.rows
        elif not followed:
            self.taken += receipt.rows

    def restart(self) -> None:
        """The engine counts from nothing again."""
        self.refused_batches = self.refused_rows = self.duplicate = 0


class SimulatedServer:
    """What clients see: a door, which is sometimes closed.

    process: of this life; None while it is down. lives: how many there were. counted: by stream.
    refusals: for want of room, ever. merges: summaries that were taken. problems: what must never
    be.
    """

    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        machine: VirtualEnvironment,
        directory: Path,
        *,
        durable: Durable,
        answered: Answered,
    ) -> None:
        self.process: Process | None = None
        self.lives = 0
        self.counted: defaultdict[str, ClientCounts] = defaultdict(ClientCounts)
        self.refusals = 0
        self.merges = 0
        self.problems: list[str] = []
        self.on_down: list[Callable[[], None]] = []
        self._scenario = scenario
        self._agenda = agenda
        self._machine = machine
        self._root = directory
        self._drops = scenario.stream.on_overload.startswith("DROP")
        self._directory = directory / "life-0"
        self._durable = durable
        self._sent: dict[_Number, bytes] = {}  # What may be dropped from, or is summarised, whole.
        self._quotas = directory / "tenants.toml"
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
        if self._scenario.tenants:
            self._quotas.write_text(quotas_of(self._scenario.tenants))
            settings = settings.model_copy(update={"tenants_file": self._quotas})
        engine = Engine.open(self._directory, settings, machine=self._machine)
        if STREAM not in engine.core.streams:
            engine.execute(create(self._scenario.stream))
            for tenant in self._scenario.tenants:
                statement = create(self._scenario.stream, stream_of(tenant.name))
                engine.execute(statement, caller=Caller(tenant.name))
            if self._scenario.clients is not None:
                engine.execute(f"CREATE TABLE {TABLE} (key BIGINT PRIMARY KEY, shard BIGINT)")
            for query in self._scenario.queries:
                engine.register(query.name, query.sql)
            for rows in self._scenario.rows:
                engine.register(rows.name, rows.sql)
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

    def close(self) -> dict[str, Ledger]:
        """End.

        Returns:
          The ledgers at the end, by stream.
        """
        ledgers = {name: self.engine.ledger(name) for name in self.streams}
        self.engine.close()
        return ledgers

    @property
    def engine(self) -> Engine:
        """Of this life."""
        assert self.process is not None
        return self.process.engine

    @property
    def streams(self) -> dict[str, Stream]:
        """Of this life, by name."""
        return self.engine.core.streams

    @property
    def asks_help(self) -> bool:
        """Return whether its last word was that summaries would help it."""
        return self.process is not None and self.engine.overload.state.asks_help

    def _die(self) -> None:
        """All state is gone; the next life begins with what is on disk."""
        process, self.process = self.process, None
        assert process is not None
        self._leave()
        process.end()
        with suppress(ShedderError):  # A file may be closed in the middle of a call.
            process.engine.core.store.close()
        for callback in self.on_down:
            callback()
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
        for counted in self.counted.values():
            counted.restart()
        try:
            self.start()
        except Died:  # While it recovered.
            self._leave()
            self._start_later(dying)
            return
        for header, batch in sent_in(dying):
            if isinstance(header, TableChange):
                if header.version <= self.engine.core.tables[TABLE].version:
                    self._whole(header, batch)
                continue
            if isinstance(header, Idle):
                log = self.engine.core.store.log
                found = (it for it in log.read(log.first_sequence) if it.kind == RecordType.IDLE)
                if any(Idle.from_bytes(it.header) == header for it in found):
                    self._whole(header, batch)
                continue
            name = self._name_of(header)
            last = self.engine.last_sequence(name, header.producer)
            if last is not None and header.sequence <= last[1]:  # Of some, no tuple is left.
                self._whole(header, batch)
        for name, counted in self.counted.items():
            stream = self.streams[name]
            lost = max(counted.acknowledged - stream.position, counted.taken - stream.applied)
            if lost > 0:
                self.problems.append(f"a crash lost {lost} acknowledged tuples of {name}")

    def _name_of(self, header: Batch | Built | Idle) -> str:
        return next(name for name, each in self.streams.items() if each.id == header.stream)

    def _whole(self, header: Header, batch: pa.RecordBatch | None) -> None:
        """Tell of what is durable as its tuples are, whatever was dropped of it, or summarised."""
        if isinstance(header, TableChange):
            assert batch is not None
            self._durable(TABLE, header, batch)
            return
        name = self._name_of(header)
        if isinstance(header, Idle):
            self._durable(name, header, NO_TUPLES)
            return
        payload = self._sent.pop((name, header.producer, header.sequence), None)
        if payload is not None and (batch is None or header.flags & DROPPED):
            batch = decode_stored(payload, self.streams[name].schema)
        assert batch is not None
        self._durable(name, header, batch)

    def _answer(self, query: str, update: AnswerUpdate) -> None:
        if self.process is not None:
            self._machine.spend(self._costs.answer_ns)
        self._answered(query, update)

    # --- the door ------------------------------------------------------------------------------

    def upsert(self, rows: pa.RecordBatch) -> None:
        """Put rows into the table, without waiting for the disk; nothing happens if it is down."""
        if self.process is None:
            return
        core = self.engine.core

        def submit(change: NumberedChange) -> None:
            parts: list[Bytes] = [change.header.to_bytes(), body_of(change.batch)]
            core.log_queue.submit(RecordType.TABLE, parts, change)

        core.tables[TABLE].change(partial(upsert, batch=rows), submit, core.clock_us)
        self.process.look_at_the_disk()

    def append(
        self,
        stream: str,
        payload: bytes,
        rows: int,
        *,
        producer: str,
        sequence: int,
        summarised: bool = False,
        left_out: Dropped | None = None,
        whole: bytes = b"",
    ) -> Future[Receipt]:
        """As a client does.

        Args:
          stream, payload, rows, producer, sequence, summarised, left_out: as of the engine's.
          whole: the batch before anything was left out.

        Raises:
          what the engine raises; Draining: it is down.
        """
        if self.process is None:
            raise Draining("the server is down")
        try:
            receipt = self.engine.append(
                stream,
                payload,
                producer=producer,
                epoch=0,
                sequence=sequence,
                rows=rows,
                summarised=summarised,
                left_out=left_out,
            )
        except Died:  # While it noted that some batches are thinned from now on.
            self._die()
            raise Draining("the server is down") from None
        except ShedderError as error:
            self._refused(stream, rows, error)
            raise
        if not receipt.done() and (self._drops or left_out is not None):
            self._sent[stream, producer, sequence] = payload if left_out is None else whole
        receipt.add_done_callback(partial(self._acknowledge, stream, summarised))
        self.process.look_at_the_disk()
        return receipt

    def plans(self, stream: str) -> Plans:
        """What a client must know to summarise.

        Raises:
          Draining: it is down.
        """
        if self.process is None:
            raise Draining("the server is down")
        return plans_now(self.engine.core, stream)

    def merge(
        self,
        stream: str,
        summaries: bytes,
        *,
        payload: bytes,
        rows: int,
        producer: str,
        sequence: int,
    ) -> Future[Receipt]:
        """As a client does that helps; the receipt comes when the panes know the summaries.

        Args:
          stream, summaries, producer, sequence: as of the engine's. payload, rows: the tuples,
            which it does not get now.

        Raises:
          what the engine raises; Draining: it is down.
        """
        if self.process is None:
            raise Draining("the server is down")
        core, panes = self.engine.core, len(self.process.standings)
        try:
            durable = append_summaries(
                core,
                self.engine.admission,
                stream,
                summaries,
                producer=producer,
                epoch=0,
                sequence=sequence,
                tuples_follow=True,
            )
        except Died:  # While it noted that the log has summaries from now on.
            self._die()
            raise Draining("the server is down") from None
        except ShedderError as error:  # An Overloaded refusal comes before the rows are counted.
            self._refused(stream, 0 if isinstance(error, Overloaded) else rows, error)
            raise
        if not durable.done():
            self.merges += 1
            self._sent[stream, producer, sequence] = payload
        self._machine.spend(panes * _ANSWERS_PER_PANE * self._costs.answer_ns)
        durable.add_done_callback(partial(self._acknowledge, stream, False))
        self.process.look_at_the_disk()
        return self._applied(durable)

    def _applied(self, durable: Future[Receipt]) -> Future[Receipt]:
        """Done when what is durable has been applied; never, if the process dies before."""
        known: Future[Receipt] = Future()
        executor = self.engine.core.executor

        def tell(done: Future[Receipt]) -> None:
            executor.post(lambda: known.set_result(done.result()))

        durable.add_done_callback(tell)
        return known

    def _refused(self, stream: str, rows: int, error: ShedderError) -> None:
        counted = self.counted[stream]
        counted.refused_batches += 1
        counted.refused_rows += rows
        self.refusals += isinstance(error, Overloaded)

    def set_levels(self, query: str, levels: tuple[int, ...]) -> None:
        """From where the log is now, a query's synopses read at these levels, whatever the load."""
        if self.process is not None:
            forced = range(len(levels))
            try:
                stream, _ = self.engine.core.standing_query(query)
                submit_levels(self.engine.core, stream, query, levels, forced)
            except Died:
                self._die()
            else:
                self.process.look_at_the_disk()

    def _acknowledge(self, stream: str, followed: bool, done: Future[Receipt]) -> None:
        if done.exception() is None:
            self.counted[stream].acknowledge(done.result(), followed=followed)


def quotas_of(tenants: Sequence[Tenant]) -> str:
    """Their file, as in docs/operations.md."""
    lines = []
    for tenant in tenants:
        cpu = None if tenant.cores is None else 1e9 * tenant.cores
        values = {
            "rows_per_s": tenant.rows_per_s,
            "bytes_per_s": tenant.bytes_per_s,
            "cpu_ns_per_s": cpu,
            "weight": tenant.weight,
        }
        lines += [f"[tenant.{tenant.name}]"]
        lines += [f"{key} = {value!r}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


@lru_cache
def _settings(machine: ScenarioMachine, overload: str) -> Settings:
    """Reading the environment takes longer than many a world."""
    return Settings.load(
        memory_bytes=machine.memory_bytes,
        ingest_queue_bytes=machine.ingest_queue_bytes,
        sample_rows=machine.sample_rows,
        run_rows=machine.run_rows,
        checkpoint_seconds=machine.checkpoint_seconds,
        idle_seconds=machine.idle_seconds,
        row_query_bytes_max=machine.row_query_bytes,
        overload=overload,
    )
