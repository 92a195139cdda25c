"""The kinds of log records: how each is read, when it takes effect, and what the effect is.

A record is applied by the same function when it is new and when recovery replays the log. A new
kind of record needs one entry in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from shedder.archive.log.log_segment import Record
from shedder.archive.log.records import (
    DROPPED,
    Batch,
    Built,
    Heartbeat,
    Idle,
    Level,
    LevelFrom,
    RecordType,
    Sizes,
)
from shedder.archive.log.setting_changes import Alteration, alteration_from_body
from shedder.archive.log.table_changes import TableChange, batch_of_body
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.apply.level_records import apply_level
from shedder.engine.apply.setting_records import apply_alteration
from shedder.engine.apply.size_records import PaneShrinker
from shedder.engine.apply.window_answers import WindowAnswers
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.arrived_record import PendingRecord
from shedder.engine.remote_summaries.validation import ValidatedSummaries
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.tables.live_tables import NumberedChange
from shedder.streams.batches import decode_stored
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

Header = Batch | Built | Heartbeat | Idle | Level | LevelFrom | Sizes | Alteration | TableChange


class Timing(Enum):
    """When a record takes effect."""

    IN_ORDER = auto()  # On the apply thread, after the records before it.
    WHEN_DURABLE = auto()  # On the disk thread, before the records that wait to be applied.
    BEFOREHAND = auto()  # Before the record was written: a replay looks for its `from_sequence`.


class RecordHandler:
    """Applies records to the live state. On the apply thread, or before it starts."""

    def __init__(self, core: EngineState, windows: WindowAnswers, shrinker: PaneShrinker) -> None:
        self.core = core
        self._windows = windows
        self.shrinker = shrinker

    def apply(self, kind: int, tokens: Sequence[Any]) -> None:
        """Apply consecutive records of one kind; several only where its `together` allows that."""
        KINDS[kind].effect(self, tokens)

    def apply_batch(
        self,
        stream: Stream,
        header: Batch,
        batch: pa.RecordBatch,
        *,
        dropped: Dropped | None = None,
        skipped: bool = False,
        late_in_batch: int = 0,
    ) -> None:
        """Read one batch into everything in memory, and answer the windows it closes.

        dropped, skipped, late_in_batch: as of `Stream.apply`.
        """
        core = self.core
        positions = Positions(stream.schema.seed, header.first_position)
        frame = Frame(batch, stream.schema.time_column, positions=positions)
        if header.first_position != stream.sample.position:  # Damage has torn a hole.
            rows = core.settings.sample_rows
            stream.go_on_at(header.first_position, core.clock_us(), sample_rows=rows)
        samples = (each.sample for each in core.streams.values())
        core.samples.make_room(stream.sample, batch.nbytes, samples)
        stream.sample.update(header.first_position, frame)
        stream.apply(header, frame, dropped=dropped, skipped=skipped, late_in_batch=late_in_batch)
        self._after(stream)

    def read_rows(
        self, stream: Stream, arrived: PendingRecord, *, more: Collection[int] = ()
    ) -> None:
        """Have row queries read one batch; `apply_batch` may then read several as one.

        more: ids of the streams whose batches wait behind it.
        """
        assert isinstance(arrived.header, Batch)
        assert isinstance(arrived.content, pa.RecordBatch)
        time_column = stream.schema.time_column
        self.core.rows.read(
            arrived.header, arrived.content, time_column, arrived.dropped, more=more
        )

    def _batches(self, tokens: Sequence[PendingRecord]) -> None:
        [arrived] = tokens
        assert isinstance(arrived.header, Batch)
        assert isinstance(arrived.content, pa.RecordBatch)
        stream = self._stream(arrived.header.stream)
        if stream is not None:
            self.read_rows(stream, arrived)
            self.apply_batch(stream, arrived.header, arrived.content, dropped=arrived.dropped)

    def _summaries(self, tokens: Sequence[PendingRecord]) -> None:
        """Fold what was built of tuples elsewhere into panes, and answer the windows it closes."""
        [arrived] = tokens
        assert isinstance(arrived.header, Built)
        assert isinstance(arrived.content, ValidatedSummaries)
        stream = self._stream(arrived.header.stream)
        if stream is not None:
            stream.apply_built(arrived.header, arrived.content)
            self._after(stream)
            stream.note_accepted(arrived.accepted)

    def _heartbeats(self, tokens: Sequence[Heartbeat]) -> None:
        """Raise a watermark, and answer the windows that this closes."""
        [header] = tokens
        stream = self._stream(header.stream)
        if stream is not None:
            self.core.rows.promise(header)
            stream.heartbeat(header.watermark_us, header.arrival_us)
            self._after(stream)

    def _idles(self, tokens: Sequence[Idle]) -> None:
        """Have row queries of several streams go on without a silent one."""
        [header] = tokens
        self.core.rows.count_idle(header.stream)

    def _levels(self, tokens: Sequence[Level | LevelFrom]) -> None:
        [header] = tokens
        apply_level(self.core, header)

    def _sizes(self, tokens: Sequence[Sizes]) -> None:
        self.shrinker.apply_sizes(tokens)

    def _settings(self, tokens: Sequence[Alteration]) -> None:
        [alteration] = tokens
        apply_alteration(self.core, alteration)

    def _tables(self, tokens: Sequence[NumberedChange]) -> None:
        [change] = tokens
        self.core.tables.apply(change)
        self.core.rows.change(change.header, change.batch)

    def _stream(self, stream_id: int) -> Stream | None:
        """Return a stream; None: it was dropped while its records were on the way."""
        name = self.core.stream_name(stream_id)
        return None if name is None else self.core.streams[name]

    def _after(self, stream: Stream) -> None:
        stream.close_panes()
        self._windows.after(stream)
        self.shrinker.shrink_soon()


def _no_content(header: Header, record: Record, schema: StreamSchema | None) -> object:
    del record, schema
    return header


def _rows(header: Header, record: Record, schema: StreamSchema | None) -> PendingRecord:
    assert isinstance(header, Batch)
    assert schema is not None
    body = bytes(record.body)
    dropped = Dropped.read(body) if header.flags & DROPPED else None
    return PendingRecord(header, decode_stored(body, schema), dropped=dropped)


def _built(header: Header, record: Record, schema: StreamSchema | None) -> PendingRecord:
    assert isinstance(header, Built)
    del schema
    return PendingRecord(header, ValidatedSummaries(Summaries.from_bytes(bytes(record.body))))


def _change(header: Header, record: Record, schema: StreamSchema | None) -> NumberedChange:
    assert isinstance(header, TableChange)
    del schema
    return NumberedChange(header, batch_of_body(bytes(record.body)))


@dataclass(frozen=True, slots=True)
class RecordKind:
    """One kind of record.

    header: reads a stored record's header, or the body where the header has nothing.
    effect: applies consecutive tokens.
    token: makes what is applied of a header, its record, and the schema of its stream.
    timing: when the effect is due.
    together: whether several consecutive records are applied at once.
    has_tuples: whether recovery also reads records that the checkpoint covers, for the stream's
      tail and producers.
    """

    header: Callable[[Record], Header]
    effect: Callable[[RecordHandler, Sequence[Any]], None]
    token: Callable[[Header, Record, StreamSchema | None], object] = _no_content
    timing: Timing = Timing.IN_ORDER
    together: bool = False
    has_tuples: bool = False


KINDS = MappingProxyType[int, RecordKind](
    {
        RecordType.BATCH: RecordKind(
            lambda record: Batch.from_bytes(record.header),
            RecordHandler._batches,
            _rows,
            has_tuples=True,
        ),
        RecordType.BUILT: RecordKind(
            lambda record: Built.from_bytes(record.header),
            RecordHandler._summaries,
            _built,
            has_tuples=True,
        ),
        RecordType.HEARTBEAT: RecordKind(
            lambda record: Heartbeat.from_bytes(record.header), RecordHandler._heartbeats
        ),
        RecordType.LEVEL: RecordKind(
            lambda record: Level.from_bytes(record.header), RecordHandler._levels
        ),
        RecordType.LEVEL_FROM: RecordKind(
            lambda record: LevelFrom.from_bytes(record.header),
            RecordHandler._levels,
            timing=Timing.BEFOREHAND,
        ),
        RecordType.SIZES: RecordKind(
            lambda record: Sizes.from_bytes(record.header), RecordHandler._sizes, together=True
        ),
        RecordType.ALTERED: RecordKind(
            lambda record: alteration_from_body(bytes(record.body)),
            RecordHandler._settings,
            timing=Timing.WHEN_DURABLE,
        ),
        RecordType.IDLE: RecordKind(
            lambda record: Idle.from_bytes(record.header), RecordHandler._idles
        ),
        RecordType.TABLE: RecordKind(
            lambda record: TableChange.from_bytes(record.header), RecordHandler._tables, _change
        ),
    }
)
"""By kind. Records of other kinds have no effect."""
