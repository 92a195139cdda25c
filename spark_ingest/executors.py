"""Tasks on Spark's executors, a partition at a time: Arrow batches in, a few bytes out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

import shedder
from shedder.client.client import Client
from shedder.client.failures import Patience, patiently
from shedder.client.target import pem
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser, built_of
from shedder.engine.remote_summaries.validation import ROWS_MAX
from shedder.engine.remote_summaries.wire_format import Summaries
from shedder.errors import FailedPrecondition, SchemaMismatch
from shedder.streams.batch_conversion import conform, conform_batch
from shedder.streams.batches import ROWS_PER_BATCH
from spark_ingest.batch_journal import Begun
from spark_ingest.files import rows_of
from spark_ingest.rejected_rows import CORRUPT, Aside, has_corrupt, sound

BUILT = "rows long, poison long, data binary"
"""What a partition comes to, for Spark."""

PUSHED = "rows long, poison long, producer string, epoch long, next long"
"""What a partition has pushed: under which name, in which epoch, and the number after its last."""

_COUNTS: list[tuple[str, pa.DataType]] = [("rows", pa.int64()), ("poison", pa.int64())]
_BUILT = pa.schema([*_COUNTS, ("data", pa.binary())])
_PUSHED = pa.schema(
    [*_COUNTS, ("producer", pa.string()), ("epoch", pa.int64()), ("next", pa.int64())]
)

Batches = Iterator[pa.RecordBatch]

_FILES = ("ca", "cert", "key")  # Among the options of a service.


@dataclass(frozen=True, slots=True)
class Service:
    """A Shedder server, for driver and executors.

    address: HOST:PORT. options: of `shedder.connect` (token, ca, cert, key, insecure); files are
    read here, on the driver, because executors on other machines have none of them. None of it is
    printed. patience_s: how long it may be away.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    patience_s: float = 600.0

    def __post_init__(self) -> None:
        """Executors get this as it was pickled, and do not come here.

        Raises:
          BadSetting: a file cannot be read.
        """
        read = {name: pem(name, self.options[name]) for name in _FILES if name in self.options}
        object.__setattr__(self, "options", {**self.options, **read})

    def connect(self) -> Client:
        """A client; waits for the server.

        Raises:
          Unreachable: it was away for too long.
        """

        def connected() -> Client:
            return shedder.connect(self.address, patience_s=self.patience_s, **self.options)

        return patiently(connected, Patience(self.patience_s))


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What executors must know of a micro-batch. plans: as text. aside: where poison goes.

    begun: what all tries go by.
    files: its rows are the names of Parquet files, and the tuples are in these.
    """

    plans: str
    begun: Begun
    aside: Aside
    files: bool = False

    @property
    def batch(self) -> int:
        """Its number."""
        return self.begun.batch

    def tuples(self, batches: Batches) -> Batches:
        """What Spark hands over, or what is in the files that it names."""
        return _checked(rows_of(batches), Plans.from_json(self.plans)) if self.files else batches

    def read(self, batches: Batches, poison: list[pa.Table]) -> Batches:
        """The sound tuples, as the stream's batches; what is not sound is put into the list.

        They are cut by the limits of the first try, and what is no row by these stays none.
        """
        plans = Plans.from_json(self.plans)
        limits = self.begun.limits or plans.limits
        for batch in batches:
            good, bad = sound(batch, plans.schema, self.begun.newest_us, limits.bytes_max)
            if bad is not None:
                poison.append(bad)
            yield from conform(good, plans.schema, limits=limits)

    def keep(self, poison: Iterable[pa.Table]) -> int:
        """Write poison aside; how many rows it is."""
        tables = list(poison)
        if not tables:
            return 0
        for number, rows in enumerate(_alike(tables)):
            self.aside.write(rows, self.batch, _partition(), number)
        return sum(map(len, tables))


def _alike(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """As few tables as their types allow: files of one partition may differ in these."""
    found = list[pa.Table]()
    for table in tables:
        try:
            found[-1:] = [pa.concat_tables([*found[-1:], table], promote_options="permissive")]
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            found.append(table)
    return found


def first_position(batch: int, partition: int, partitions: int) -> int:
    """Of a partition's tuples, so that no two of a stream have the same random key.

    Each micro-batch has as many positions as its summaries may have tuples, and each of its
    partitions an equal share of them: 5 * 10^9 where there are 200. Later tuples have later ones.
    """
    room = ROWS_MAX // partitions
    return batch % ((1 << 63) // ROWS_MAX) * ROWS_MAX + partition % partitions * room


def builder(part: ExecutorContext, partitions: int) -> Callable[[Batches], Batches]:
    """For mapInArrow: the summaries of each partition, of which there are so many."""

    def build(batches: Batches) -> Batches:
        plans = Plans.from_json(part.plans)
        first = first_position(part.batch, _partition(), partitions)
        made, poison = Summariser(plans, first), list[pa.Table]()
        for batch in part.read(gathered(part.tuples(batches)), poison):
            made.add(batch)
        summaries = made.summaries()
        yield _row(_BUILT, summaries.rows, part.keep(poison), summaries.to_bytes())
        _settle()

    return build


def merger(plans: str) -> Callable[[Batches], Batches]:
    """For mapInArrow: one row of summaries for all of a partition's."""

    def merge(batches: Batches) -> Batches:
        given, poison = list[Summaries](), 0
        for batch in batches:
            given += [Summaries.from_bytes(data.as_buffer()) for data in batch.column("data")]
            poison += pc.sum(batch.column("poison")).as_py()
        summaries = built_of(given, Plans.from_json(plans))
        yield _row(_BUILT, summaries.rows, poison, summaries.to_bytes())
        _settle()

    return merge


def partition_name(producer: str, partition: int) -> str:
    """Under which a partition pushes."""
    return f"{producer}/{partition}"


def sender(
    part: ExecutorContext, service: Service, stream: str, producer: str
) -> Callable[[Batches], Batches]:
    """For mapInArrow: each partition's tuples are pushed, under a producer's name of its own.

    The micro-batch is the epoch, so that one that is done again stores nothing twice, as long as it
    comes in as many partitions and is cut alike (`begun.Begun`). A batch goes as it came: however a
    try ends, what it has pushed is the first batches of the next one.
    """

    def send(batches: Batches) -> Batches:
        rows, poison, sequence = 0, list[pa.Table](), 0
        name, epoch = partition_name(producer, _partition()), part.batch + 1
        with service.connect() as client, client.producer(stream, name, epoch=epoch) as out:
            part.begun.check_limits(out.limits)  # The service may have come back with others.
            for batch in part.read(part.tuples(batches), poison):
                sequence = out.push(batch, sequence=sequence)
                rows += batch.num_rows
        yield _row(_PUSHED, rows, part.keep(poison), name, epoch, sequence)
        _settle()

    return send


def gathered(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The same rows in batches of ROWS_PER_BATCH, wherever they were cut before.

    Synopses take them in half of the time that small batches take. Only where all is
    lost if a task fails: a worker that feeds this one and dies looks like the end of its rows.
    """
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and batch.schema != held[0].schema:
            yield from _joined(held)
            held, rows = [], 0
        first = 0
        while rows + batch.num_rows - first >= ROWS_PER_BATCH:
            end = first + ROWS_PER_BATCH - rows
            yield from _joined([*held, batch.slice(first, end - first)])
            held, rows, first = [], 0, end
        if first < batch.num_rows:
            held.append(batch.slice(first))
            rows += batch.num_rows - first
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


def _checked(named: Iterable[tuple[str, pa.RecordBatch]], plans: Plans) -> Batches:
    """The rows of files whose columns are the stream's.

    Raises:
      FailedPrecondition: names the file, the column and both types.
    """
    last = ""
    for name, rows in named:
        if name != last:
            try:
                check_columns(rows.schema, plans)
            except SchemaMismatch as error:
                raise FailedPrecondition(f"{name}: {error}") from None
            last = name
        yield rows


def check_columns(columns: pa.Schema, plans: Plans) -> None:
    """Check that rows with these columns can be the stream's; CORRUPT may be beside them.

    Raises:
      SchemaMismatch: names the column and both types.
    """
    if has_corrupt(columns, plans.schema):
        columns = columns.remove(columns.get_field_index(CORRUPT))
    for column in plans.schema.columns:
        if column.name not in columns.names:  # Else a pipeline would bring NULLs day after day.
            raise SchemaMismatch(plans.schema.name, f"column {column.name!r} is missing")
    conform_batch(pa.RecordBatch.from_pylist([], schema=columns), plans.schema)


def check_names(columns: pa.Schema, plans: Plans) -> None:
    """Refuse a frame's columns that PySpark itself cannot hand to its workers.

    Raises:
      SchemaMismatch: names the column; the tuples of files go another way (`parquet_files`).
    """
    for name in columns.names:
        if "." in name or "`" in name:
            raise SchemaMismatch(
                plans.schema.name,
                f"column {name!r} has a dot or a backtick in its name, with which Spark does not "
                "hand a frame to Python; Parquet files with such columns can be summarised and "
                "forwarded by `parquet_files`, and pushed by `shedder push`",
            )


def _row(schema: pa.Schema, *values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, values, strict=True))], schema=schema)


def _settle() -> None:
    """What a worker has loaded by the end of its first task is not looked at for garbage again.

    Spark keeps workers and has each of them look after every task, for 50 ms, whatever that was.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Freeze loaded modules once per process: the forking daemon froze only its own modules."""
    gc.collect()
    gc.freeze()


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
