"""What runs on Spark's executors, a partition at a time: Arrow batches in, a few bytes out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

import shedder
from shedder.client.client import Client
from shedder.client.failures import Patience, patiently
from shedder.client.target import pem
from shedder.engine.summaries import Summaries
from shedder.engine.summarise import Plans, Summariser, built_of
from shedder.errors import FailedPrecondition, SchemaMismatch
from shedder.streams.batches import ROWS_PER_BATCH
from shedder.streams.conform import conform, conform_batch
from spark_ingest.files import rows_of
from spark_ingest.poison import CORRUPT, Aside, has_corrupt, sound

BUILT = "rows long, poison long, data binary"
"""What a partition comes to, for Spark."""

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("rows", pa.int64()),
    ("poison", pa.int64()),
    ("data", pa.binary()),
]
_SCHEMA = pa.schema(_FIELDS)

Batches = Iterator[pa.RecordBatch]

_FILES = ("ca", "cert", "key")  # Among the options of a service.


@dataclass(frozen=True, slots=True)
class Service:
    """A Shedder server, for driver and executors.

    address: HOST:PORT. options: of `shedder.connect` (token, ca, cert, key, insecure); files are
    read here, on the driver, because executors on other machines have none of them.
    patience_s: how long it may be away.
    """

    address: str
    options: dict[str, Any] = field(default_factory=dict)
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
class Part:
    """What executors must know of a micro-batch. plans: as text. aside: where poison goes.

    newest_us: the latest event time that is believed, the same at each try.
    files: its rows are the names of Parquet files, and the tuples are in these.
    """

    plans: str
    batch: int
    aside: Aside
    newest_us: int
    files: bool = False

    def tuples(self, batches: Batches) -> Batches:
        """What Spark hands over, or what is in the files that it names."""
        return _checked(rows_of(batches), Plans.from_json(self.plans)) if self.files else batches

    def read(self, batches: Batches, poison: list[pa.Table]) -> Batches:
        """The sound tuples, as the stream's batches; what is not sound is put into the list."""
        plans = Plans.from_json(self.plans)
        for batch in batches:
            good, bad = sound(batch, plans.schema, self.newest_us)
            if bad is not None:
                poison.append(bad)
            yield from conform(good, plans.schema, limits=plans.limits)

    def keep(self, poison: Iterable[pa.Table]) -> int:
        """Write poison aside; how many rows it is."""
        tables = list(poison)
        if not tables:
            return 0
        rows = pa.concat_tables(tables)
        self.aside.write(rows, self.batch, _partition())
        return len(rows)


def builder(part: Part) -> Callable[[Batches], Batches]:
    """For mapInArrow: the summaries of each partition."""

    def build(batches: Batches) -> Batches:
        plans = Plans.from_json(part.plans)
        # Another stretch of positions for each partition of each micro-batch.
        first = (part.batch % (1 << 23)) << 40 | (_partition() % (1 << 16)) << 24
        made, poison = Summariser(plans, first), list[pa.Table]()
        for batch in part.read(gathered(part.tuples(batches)), poison):
            made.add(batch)
        summaries = made.summaries()
        yield _row(summaries.rows, part.keep(poison), summaries.to_bytes())
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
        yield _row(summaries.rows, poison, summaries.to_bytes())
        _settle()

    return merge


def sender(
    part: Part, service: Service, stream: str, producer: str
) -> Callable[[Batches], Batches]:
    """For mapInArrow: each partition's tuples are pushed, under a producer's name of its own.

    The micro-batch is the epoch, so that one that is done again stores nothing twice, as long as it
    comes in as many partitions (`begun.Begun.check`). A batch goes as it came: however a try ends,
    what it has pushed is the first batches of the next one.
    """

    def send(batches: Batches) -> Batches:
        rows, poison, sequence = 0, list[pa.Table](), 0
        name, epoch = f"{producer}/{_partition()}", part.batch + 1
        with service.connect() as client, client.producer(stream, name, epoch=epoch) as out:
            for batch in part.read(part.tuples(batches), poison):
                sequence = out.push(batch, sequence=sequence)
                rows += batch.num_rows
        yield _row(rows, part.keep(poison), b"")
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
    """Whether rows with these columns can be the stream's; CORRUPT may be there beside them.

    Raises:
      SchemaMismatch: names the column and both types.
    """
    if has_corrupt(columns, plans.schema):
        columns = columns.remove(columns.get_field_index(CORRUPT))
    conform_batch(pa.RecordBatch.from_pylist([], schema=columns), plans.schema)


def _row(rows: int, poison: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([rows], pa.int64()),
            pa.array([poison], pa.int64()),
            pa.array([data], pa.binary()),
        ],
        schema=_SCHEMA,
    )


def _settle() -> None:
    """What a worker has loaded by the end of its first task is not looked at for garbage again.

    Spark keeps workers and has each of them look after every task, for 50 ms, whatever that was.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
