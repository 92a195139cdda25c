"""Backfill: a stream's past, from any DataFrame, as archive runs and panes, adopted in one moment.

The source is cut by event time into parts of about a run's rows. Executors write each part as the
service would have written it, build the panes that standing queries still need, and send both; the
service keeps parts aside until all are there. A part that is done stays done, so whatever was
killed is started again with the same name.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from shedder.client.client import Client
from shedder.engine.rebuild.backfill import BackfillState
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.errors import FailedPrecondition, PlansChanged, ShedderError
from shedder.streams.batch_conversion import conform
from shedder.streams.batches import TIME_MAX_US, TIME_MIN_US, arrow_schema
from spark_ingest.executors import Service, check_columns, check_names
from spark_ingest.parts import send_part
from spark_ingest.rejected_rows import Aside, sound, taken
from spark_ingest.runtime.executor_errors import unwrapped
from spark_ingest.runtime.spark_session import check_spark, without_pandas
from spark_ingest.sources import check_readers

PART = "__part"
PART_ROWS = 1 << 20  # As many as the service's own runs have, unless it was told otherwise.
_AGAIN_MAX = 5  # Times that panes are built again, because queries came meanwhile.
_LOOK_S = 1.0  # Between two looks at how far it is.
_ACCURACY = 10_000  # Of Spark's percentiles: ranks are off by up to a ten-thousandth.
_DONE = "part int, rows long, poison long"

Batches = Iterator[pa.RecordBatch]
OnProgress = Callable[[int, int], None]
"""Is told how many rows are done, of how many."""

_log = structlog.get_logger("spark_ingest.backfill")


@dataclass(frozen=True, slots=True)
class Cut:
    """How a source is cut into parts, the same at every start.

    rows: of the source. bounds_us: event times, ascending; part i is before bound i. newest_us: the
    largest event time that is believed; believed_us: what is later is poison.
    """

    rows: int
    bounds_us: tuple[int, ...]
    newest_us: int | None
    believed_us: int

    @property
    def parts(self) -> int:
        """Return how many there are; some may be empty."""
        return len(self.bounds_us) + 1

    def of(self, times_us: NDArray[np.int64]) -> NDArray[np.int32]:
        """The part of each event time; shape [rows]."""
        found = np.searchsorted(np.array(self.bounds_us, np.int64), times_us, "right")
        return found.astype(np.int32)

    def to_json(self) -> str:
        """As the service keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Cut:
        """The inverse of to_json."""
        read = json.loads(text)
        return cls(**{**read, "bounds_us": tuple(read["bounds_us"])})


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill has come to. rows: now part of the stream; poison: kept aside.

    parts: that were done by this call. duplicate: all of it was part of the stream before.
    """

    rows: int
    poison: int
    parts: int
    seconds: float
    duplicate: bool = False


def backfill(
    frame: DataFrame,
    service: Service,
    stream: str,
    *,
    name: str,
    aside: str | None = None,
    part_rows: int = PART_ROWS,
    overlap: bool = False,
    on_progress: OnProgress | None = None,
) -> Backfilled:
    """Make the rows of a frame a part of a stream's past, all at once, while the stream goes on.

    Args:
      frame: with the stream's columns, by name, in any order; it is read three times, and its rows
        must be the same each time.
      service: where the stream is. stream: its name.
      name: of this backfill. A call with the same name and source goes on where one before it
        ended, and does nothing once its rows are part of the stream.
      aside: the directory where rows go that the stream cannot take, on a file system that all
        executors see, below job=backfill.STREAM.NAME; None: such rows end the backfill.
      part_rows: about so many rows to a part, which one executor holds in memory, and the service.
      overlap: event times may be among those that the stream has already.
      on_progress: called with the progress, from another thread.

    Raises:
      SchemaMismatch: the frame's columns are not the stream's. UnknownStream, Unreachable.
      SilentNulls: it reads text and would not say what it cannot read.
      FailedPrecondition: the source is not what it was when this was begun, or event times overlap
        what the stream has. BeforeRetention: some are older than what it retains.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(frame.sparkSession.version)
    began = time.monotonic()
    with service.connect() as client, without_pandas():
        plans = Plans.from_json(client.plans(stream))
        columns = to_arrow_schema(frame.schema, timezone="UTC")
        check_columns(columns, plans)
        check_names(columns, plans)
        check_readers(frame)
        state = _begun(client, frame, plans, name, part_rows, aside)
        cut = Cut.from_json(state.plan)
        before = len(state.done)
        for again in range(_AGAIN_MAX):
            if state.adopted is not None:
                seconds = time.monotonic() - began
                return Backfilled(state.adopted, 0, 0, seconds, duplicate=True)
            watermark_us = _watermark(state, cut, plans, all_done=again > 0)
            work = _PartWork(service, state, cut, name, watermark_us, aside)
            if again:  # Queries have come since: their panes of all parts, and nothing else.
                _run(client, frame, replace(work, runs=False), on_progress)
            else:
                _run(client, frame, replace(work, done=tuple(sorted(state.done))), on_progress)
            state = client.begin_backfill(stream, name)
            poison = sum(bad for _, bad in state.done.values())
            try:
                adopted = client.adopt_backfill(stream, name, rows=cut.rows, overlap=overlap)
            except PlansChanged as change:
                _log.info("built_again", backfill=name, because=str(change))
                continue
            seconds = time.monotonic() - began
            done = len(state.done) - before
            return Backfilled(adopted.rows, poison, done, seconds, adopted.duplicate)
    raise PlansChanged(f"panes of backfill {name!r} were built {_AGAIN_MAX} times for new queries")


@dataclass(frozen=True, slots=True)
class _PartWork:
    """What executors must know. done: parts to leave out. runs: send them, not panes alone."""

    service: Service
    state: BackfillState
    cut: Cut
    name: str
    watermark_us: int | None
    aside: str | None
    done: tuple[int, ...] = ()
    runs: bool = True

    @property
    def plans(self) -> Plans:
        """Of the stream's queries."""
        return Plans.from_json(self.state.plans)


def _begun(
    client: Client,
    frame: DataFrame,
    plans: Plans,
    name: str,
    part_rows: int,
    aside: str | None,
) -> BackfillState:
    stream = plans.schema.name
    try:
        state = client.begin_backfill(stream, name)
    except FailedPrecondition:
        if aside is not None:  # It has not begun; one that was abandoned may have.
            _aside(aside, plans, name).clear()
        return _cut(client, frame, plans, name, part_rows)
    there = Cut.from_json(state.plan).rows if state.adopted is None else None
    if there is not None and (now := frame.count()) != there:
        raise FailedPrecondition(
            f"the source has {now:,} rows; it had {there:,} when backfill {name!r} was begun. Give "
            "it the same rows, or abandon it (Client.abandon_backfill) and begin anew"
        )
    return state


def _aside(directory: str, plans: Plans, name: str) -> Aside:
    return Aside.of(directory, "backfill", plans.schema.name, name)


def _cut(
    client: Client, frame: DataFrame, plans: Plans, name: str, part_rows: int
) -> BackfillState:
    """Begin, with a cut of the source into parts."""
    believed_us = min(TIME_MAX_US, time.time_ns() // 1_000 + plans.future_us_max)
    times = frame.select(plans.schema.time_column).mapInArrow(_times(believed_us), "t long")
    rows, newest_us = times.agg(sf.count("*"), sf.max("t")).collect()[0]
    parts = max(1, -(-rows // part_rows))
    shares = [part / parts for part in range(1, parts)]
    bounds: Sequence[int] = []
    if shares and newest_us is not None:
        found = times.agg(sf.percentile_approx("t", shares, _ACCURACY)).collect()[0][0]
        bounds = sorted(set(found))
    cut = Cut(rows, tuple(bounds), newest_us, believed_us)
    return client.begin_backfill(plans.schema.name, name, cut.to_json(), cut.parts)


def _watermark(state: BackfillState, cut: Cut, plans: Plans, *, all_done: bool) -> int | None:
    """Return where the stream's will be when this is adopted, or before that."""
    if state.watermark_us is not None:
        return state.watermark_us
    newest_us = state.newest_us if all_done else cut.newest_us
    return None if newest_us is None else newest_us - plans.schema.lateness_us


def _run(client: Client, frame: DataFrame, work: _PartWork, on_progress: OnProgress | None) -> None:
    """Do the parts that are left, and tell how far it is meanwhile."""
    columns = to_arrow_schema(frame.schema, timezone="UTC")
    kept = frame.select(*taken(columns, work.plans.schema))
    field = StructField(PART, IntegerType(), nullable=False)
    marked = kept.mapInArrow(_marker(work), StructType([*kept.schema.fields, field]))
    grouped = marked.groupBy(PART).applyInArrow(_laid(work), _DONE)
    with _WatchedPart(client, work, on_progress), unwrapped():
        grouped.collect()


class _WatchedPart:
    """Looks at the service now and then, and tells what it says."""

    def __init__(self, client: Client, work: _PartWork, on_progress: OnProgress | None) -> None:
        self._client, self._work, self._on_progress = client, work, on_progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="backfill-progress", daemon=True)

    def __enter__(self) -> None:
        if self._on_progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._on_progress is not None:
            self._thread.join()
            self._tell()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._tell()

    def _tell(self) -> None:
        assert self._on_progress is not None
        try:
            schema = self._work.plans.schema
            state = self._client.begin_backfill(schema.name, self._work.name)
        except ShedderError as error:  # It is the work that fails, if this lasts.
            _log.debug("progress_unknown", error=str(error))
            return
        self._on_progress(sum(map(sum, state.done.values())), self._work.cut.rows)


# --- on executors -------------------------------------------------------------------------------


def _times(believed_us: int) -> Callable[[Batches], Batches]:
    """For mapInArrow: event times that are believed, others NULL."""

    def read(batches: Batches) -> Batches:
        for batch in batches:
            us = _us(batch.column(0))
            fine = pc.and_(
                pc.greater_equal(us, pa.scalar(TIME_MIN_US)),
                pc.less_equal(us, pa.scalar(believed_us)),
            )
            times = pc.if_else(fine, us, pa.scalar(None, pa.int64()))
            yield pa.RecordBatch.from_arrays([times], names=["t"])

    return read


def _marker(work: _PartWork) -> Callable[[Batches], Batches]:
    """For mapInArrow: each row with its part; rows of parts that are done are left out."""
    time_column, done = work.plans.schema.time_column, np.array(work.done, np.int32)

    def mark(batches: Batches) -> Batches:
        for batch in batches:
            us = pc.fill_null(_us(batch.column(time_column)), TIME_MIN_US)
            parts = work.cut.of(us.to_numpy())
            left = ~np.isin(parts, done)
            if left.any():
                marked = batch.append_column(pa.field(PART, pa.int32(), False), pa.array(parts))
                yield marked.filter(pa.array(left))

    return mark


def _laid(work: _PartWork) -> Callable[[pa.Table], pa.Table]:
    """For applyInArrow: a part as runs and panes, sent."""

    def lay(rows: pa.Table) -> pa.Table:
        plans = work.plans
        part = rows[PART][0].as_py()
        good, bad = _separated(rows.drop_columns([PART]), work, plans)
        if bad is not None and work.aside is None:
            reason = bad["__reason"][0].as_py()
            raise FailedPrecondition(
                f"{bad.num_rows:,} rows of part {part} cannot be taken, the first: {reason}; say "
                "where such rows go (aside=...), or leave them out"
            )
        if bad is not None and work.runs:
            assert work.aside is not None
            _aside(work.aside, plans, work.name).write(bad, part, 0)
        poison = 0 if bad is None else bad.num_rows
        with work.service.connect() as client:
            send_part(
                client,
                work.state,
                work.name,
                part,
                good,
                poison=poison,
                watermark_us=work.watermark_us,
                runs=work.runs,
            )
        done = {"part": [part], "rows": [good.num_rows], "poison": [poison]}
        return pa.table(done, _DONE_SCHEMA)

    return lay


_DONE_FIELDS: list[tuple[str, pa.DataType]] = [
    ("part", pa.int32()),
    ("rows", pa.int64()),
    ("poison", pa.int64()),
]
_DONE_SCHEMA = pa.schema(_DONE_FIELDS)


def _separated(rows: pa.Table, work: _PartWork, plans: Plans) -> tuple[pa.Table, pa.Table | None]:
    """The rows that the stream takes, as it has them, and the others with their reasons."""
    good: list[pa.RecordBatch] = []
    bad: list[pa.Table] = []
    for batch in rows.to_batches():
        fine, poison = sound(batch, plans.schema, work.cut.believed_us)
        good += conform(fine, plans.schema, limits=plans.limits)
        bad += [] if poison is None else [poison]
    table = pa.Table.from_batches(good, arrow_schema(plans.schema))
    return table, pa.concat_tables(bad) if bad else None


def _us(values: Any) -> Any:
    return values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
