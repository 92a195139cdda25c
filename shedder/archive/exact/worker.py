"""The exact worker's own process: SQL over streams' runs and tails, inside a memory limit.

The process is forked (see fork_server.py). The module imports nothing of Shedder, so that the
process is small. DuckDB is imported where it runs: the process that asks knows limits and lengths
from here, and does without. The process reads requests from its input and writes replies to its
output. When the input ends it exits at once, also in the middle of a query, so it never outlives
the process that asks.

A request is a length (uint32, little-endian), a JSON object {sql, relations, beside, limits}, and
Arrow IPC streams: of each relation the tail, unless it is that of another relation, and, if it is
marked, the positions of its deleted rows. A reply is a length and a JSON object {error,
message}. If error is null, an Arrow IPC stream of the result follows, batch by batch as DuckDB
produces it, and then a second length and JSON object {error, message, cut}: an error after the
first batch, or the limit that ended the result.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

LENGTH = struct.Struct("<I")
HEADER_BYTES_MAX = 64 << 20
WHOLE_BATCH_ROWS = 65_536  # Of a result that is sent when it is whole.
BATCH_ROWS = 8_192  # Of a result that is sent as it comes: 8 MiB of rows of 1 KiB.
HELD_SHARE = 16  # DuckDB has the memory limit without this part of it, which holds rows in Arrow.
# Seconds without a request after which the process opens the database of the next request. A
# process that ends after its first answer opens no second database, which takes as much CPU.
OPEN_AHEAD_AFTER_S = 0.05
ASYNC_THREADS = 8  # Default of DuckDB 2.0.0.
TAIL, DELETED = "__tail_", "__deleted_"  # Before the name of a relation.
_FULL = tuple(os.strerror(each) for each in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class ResultTooLarge(Exception):
    """The result does not fit into the bytes it may have."""


class RowsTooLarge(Exception):
    """The rows that came with a request do not fit into memory and spill space."""


class ResultFailed(Exception):
    """DuckDB failed while it produced a result; pyarrow keeps nothing but the text."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a query may use."""

    memory_bytes: int
    threads: int
    temp_dir: str
    temp_bytes_max: int
    result_bytes_max: int

    @property
    def held_bytes_max(self) -> int:
        """Bytes of a request's rows that DuckDB does not hold."""
        return self.memory_bytes // HELD_SHARE


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """Limits at which a result is cut, with the rows before them as the result; None: no limit."""

    rows_max: int | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRelation:
    """One relation of a request.

    source: SQL of the rows. It reads the tail by the prefix TAIL and the relation's name, and the
      positions of deleted rows by the prefix DELETED.
    files: files that the source reads.
    is_marked: some of the files have deleted rows, whose positions follow the request.
    is_shared: several scans of the query read it.
    tail_of: name of an earlier relation whose tail is this one's, too. None: the relation's rows
      follow the request.
    """

    name: str
    source: str
    files: list[str]
    is_marked: bool
    is_shared: bool
    tail_of: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """One query.

    beside: further relations by name, of all columns of files.
    limits: where the result is cut; None: a result beyond the worker's limit is an error.
    """

    sql: str
    relations: list[RequestRelation]
    beside: dict[str, list[str]]
    limits: ResultLimits | None

    @property
    def all_files(self) -> list[str]:
        """All that may be read."""
        return [
            *(name for relation in self.relations for name in relation.files),
            *(name for names in self.beside.values() for name in names),
        ]


class Databases:
    """DuckDB databases of the process: one that can read the last request's files, one ahead.

    Connecting takes 12 ms of CPU, as long as a small query. What a database can read is locked, so
    a request of other files takes the database that was opened ahead. An error closes a database.
    """

    def __init__(self, limits: WorkerLimits, inherited: duckdb.DuckDBPyConnection) -> None:
        """Take the database that the fork server has opened, from `open_database`."""
        self._limits = limits
        self._locked: duckdb.DuckDBPyConnection | None = None
        self._files: set[str] = set()
        self._ahead: duckdb.DuckDBPyConnection | None = inherited
        _limit(inherited, limits)

    def open_ahead(self) -> None:
        """Open the database of the next request of other files, unless it is open."""
        if self._ahead is None:
            self._ahead = open_database()
            _limit(self._ahead, self._limits)

    @contextmanager
    def session(self, files: list[str]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Connect to a database that can read these files and nothing else.

        The connection's views and tables are dropped at the end of the block.
        """
        try:
            with self._database(files).cursor() as session:
                yield session
        except BaseException:
            self._close_locked()
            raise

    def _database(self, files: list[str]) -> duckdb.DuckDBPyConnection:
        if self._locked is not None and set(files) == self._files:
            return self._locked
        self._close_locked()
        self.open_ahead()
        database, self._ahead = self._ahead, None
        assert database is not None
        self._locked, self._files = database, set(files)
        database.execute(f"SET GLOBAL allowed_paths = [{quoted_texts(files)}]")
        database.execute("SET GLOBAL enable_external_access = false")
        database.execute("SET GLOBAL lock_configuration = true")
        return database

    def _close_locked(self) -> None:
        if self._locked is not None:
            self._locked.close()
        self._locked = None


def open_database() -> duckdb.DuckDBPyConnection:
    """Open a database that can read every file and has the settings of all queries, without limits.

    It has no threads, so a process that has it open can be forked.
    """
    import duckdb

    config: dict[str, Any] = {
        "threads": 1,
        "async_threads": 0,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "enable_external_file_cache": False,  # An idle process holds no bytes of files.
    }
    database = duckdb.connect(config=config)
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    # By a file's statistics, which leave NaN out, DuckDB takes x = NaN for never true, and
    # x > 0 for always true where all numbers are larger.
    database.execute("SET GLOBAL disabled_optimizers = 'statistics_propagation'")
    return database


def _limit(database: duckdb.DuckDBPyConnection, limits: WorkerLimits) -> None:
    """Give a database its limits and its threads."""
    memory_kib = (limits.memory_bytes - limits.held_bytes_max) // 1024
    database.execute(f"SET GLOBAL memory_limit = '{memory_kib}KiB'")
    database.execute(f"SET GLOBAL temp_directory = {quoted_texts([limits.temp_dir])}")
    database.execute(f"SET max_temp_directory_size = '{limits.temp_bytes_max // 1024}KiB'")
    database.execute(f"SET GLOBAL threads = {limits.threads}")
    database.execute(f"SET GLOBAL async_threads = {ASYNC_THREADS}")


def answer(
    database: duckdb.DuckDBPyConnection, rows: RequestRows, limits: WorkerLimits, reply: Reply
) -> None:
    """Run one query in a session of its own, which can read its files and nothing else."""
    request = rows.request
    for relation in request.relations:
        is_joined = relation.is_shared or len(request.relations) > 1
        if relation.tail_of is None:
            name = TAIL + relation.name
            _take_tail(database, name, rows.next(), limits.held_bytes_max, is_joined=is_joined)
        if relation.is_marked:
            database.register(DELETED + relation.name, rows.next().read_all())
        view = quoted_name(relation.name)
        database.execute(f"CREATE TEMP VIEW {view} AS {relation.source}")
    for name, files in request.beside.items():
        options = "hive_partitioning = false, union_by_name = true"
        source = f"read_parquet([{quoted_texts(files)}], {options})"
        database.execute(f"CREATE TEMP VIEW {quoted_name(name)} AS SELECT * FROM {source}")  # noqa: S608
    rows.end()
    result = database.sql(request.sql)
    if request.limits is None:
        _send_whole(result.to_arrow_reader(WHOLE_BATCH_ROWS), limits.result_bytes_max, reply)
    else:
        _send_cut(result.to_arrow_reader(BATCH_ROWS), request.limits, reply)


def _send_whole(reader: pa.RecordBatchReader, bytes_max: int, reply: Reply) -> None:
    """Send a result that must fit into its bytes; nothing is sent before all of it is there."""
    batches, size = [], 0
    for batch in _batches(reader):
        size += batch.nbytes
        if size > bytes_max:
            raise ResultTooLarge(f"the result has more than {bytes_max:,} bytes")
        batches.append(batch)
    reply.begin(reader.schema)
    for batch in batches:
        reply.put(batch)


def _send_cut(reader: pa.RecordBatchReader, limits: ResultLimits, reply: Reply) -> None:
    """Send batches as they come, up to the first row beyond a limit."""
    batches = _batches(reader)
    first = next(batches, None)  # An error of the query comes before anything is sent.
    reply.begin(reader.schema)
    rows = size = 0
    batch = first
    while batch is not None:
        fitting, cut = batch.num_rows, ""
        if limits.rows_max is not None and rows + fitting > limits.rows_max:
            fitting, cut = limits.rows_max - rows, "rows"
        if limits.bytes_max is not None and size + batch.nbytes > limits.bytes_max:
            share = (limits.bytes_max - size) / batch.nbytes
            if (few := int(share * batch.num_rows)) < fitting:
                fitting, cut = few, "bytes"
        reply.put(batch.slice(0, fitting))
        if cut:
            reply.cut = cut
            return
        rows, size = rows + fitting, size + batch.nbytes
        batch = next(batches, None)


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a result.

    Raises:
      ResultFailed: an error came between two of them.
    """
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        raise ResultFailed(str(error)) from error


def _take_tail(
    database: duckdb.DuckDBPyConnection,
    name: str,
    reader: pa.RecordBatchReader,
    held_bytes_max: int,
    *,
    is_joined: bool,
) -> None:
    """Make the rows of a relation that are in no file known by a name.

    Few rows stay in Arrow. More than held_bytes_max go into a table of DuckDB, which spills them.
    So do those of joined relations: DuckDB 2.0.0 loses an IS NULL filter that it pushes into an
    Arrow table where it makes an anti-join of LEFT JOIN and IS NULL.

    Raises:
      RowsTooLarge: the table does not fit.
    """
    import duckdb

    held: list[pa.RecordBatch] = []
    size, is_table = 0, False

    def put() -> None:
        database.register("__given", pa.Table.from_batches(held, reader.schema))
        table = quoted_name(name)
        begin = f"INSERT INTO {table}" if is_table else f"CREATE TEMP TABLE {table} AS"
        database.execute(f"{begin} SELECT * FROM __given")  # noqa: S608
        database.unregister("__given")
        held.clear()

    try:
        for batch in reader:
            held.append(batch)
            size += batch.nbytes
            if size > held_bytes_max:
                put()
                size, is_table = 0, True
        if is_joined or is_table:
            put()
        else:
            database.register(name, pa.Table.from_batches(held, reader.schema))
    except (duckdb.OutOfMemoryException, duckdb.TransactionException) as error:
        raise RowsTooLarge(  # The second: DuckDB needs memory for long texts as it commits them.
            "rows of the log and of tables that the query reads do not fit into the memory of the "
            f"exact worker and its spill space; set exact_memory_bytes higher: {error}"
        ) from error


def quoted_name(name: str) -> str:
    """Return a name in double quotes, for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_texts(texts: list[str]) -> str:
    """Return texts in single quotes, separated by commas, for SQL."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _error_kind(error: BaseException, files: list[str], temp_dir: str) -> str:
    """Return the word by which worker_pipe.py chooses the class of the error."""
    import duckdb

    text = str(error)
    full = isinstance(error, ResultFailed) and text.startswith("Out of Memory")
    short = (duckdb.OutOfMemoryException, MemoryError, RowsTooLarge, ResultTooLarge)
    if full or isinstance(error, short):
        return "budget"
    if isinstance(error, (duckdb.Error, ResultFailed)):
        if temp_dir in text:
            return "disk full" if any(cause in text for cause in _FULL) else "disk"
        if any(name in text for name in files):
            return "files"
    return "bug"


class Reply:
    """Reply to one request: its header, the batches of the result, and its end.

    cut: the limit that ended the result, `rows` or `bytes`; empty: none did.
    """

    def __init__(self, out: Any) -> None:
        self._out = out
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self.cut = ""

    def begin(self, schema: pa.Schema) -> None:
        """Send the header of a result."""
        self._tell(None, "")
        self._writer = pa.ipc.new_stream(self._out, schema)

    def put(self, batch: pa.RecordBatch) -> None:
        """Send some rows."""
        assert self._writer is not None
        self._writer.write_batch(batch)
        self._out.flush()

    def end(self, error: str | None = None, message: str = "") -> None:
        """Send the end; an error before any batch is the header."""
        if self._writer is not None:
            self._writer.close()
        self._tell(error, message)
        self._out.flush()

    def _tell(self, error: str | None, message: str) -> None:
        text = json.dumps({"error": error, "message": message, "cut": self.cut}).encode()
        self._out.write(LENGTH.pack(len(text)) + text)


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        os._exit(0)  # the parent is gone or has closed the pipe
    return data


class RequestRows:
    """Arrow streams behind a request, each read once, in order.

    request: what is asked.
    ended: set once all are read; the thread that reads requests from the same pipe waits for it.
    """

    def __init__(self, source: Any, request: Request) -> None:
        """The streams of a request."""
        self.request = request
        self._source = source
        self._left = sum((r.tail_of is None) + r.is_marked for r in request.relations)
        self._reader: pa.RecordBatchReader | None = None
        self.ended = threading.Event()

    def next(self) -> pa.RecordBatchReader:
        """The next stream, once all of the last one is read."""
        self._left -= 1
        self._reader = pa.ipc.open_stream(self._source)
        return self._reader

    def end(self) -> None:
        """Pass over what was not read, and let the next request be read."""
        while self._reader is not None or self._left:
            for _ in self._reader or ():
                pass
            self._reader = self.next() if self._left else None
        self.ended.set()


def _read_request(source: Any) -> Request:
    (size,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    assert size <= HEADER_BYTES_MAX, size
    header = json.loads(_exactly(source, size))
    relations = [RequestRelation(**said) for said in header["relations"]]
    limits = header["limits"] and ResultLimits(**header["limits"])
    return Request(header["sql"], relations, header["beside"], limits)


def _read_requests(source: BinaryIO, requests: queue.SimpleQueue[RequestRows]) -> None:
    """Run in a thread of its own, so that the end of the input is seen during a query."""
    try:
        while True:
            rows = RequestRows(source, _read_request(source))
            requests.put(rows)
            rows.ended.wait()
    except (OSError, pa.ArrowException):
        os._exit(0)


def serve(
    source: int, out: int, limits: dict[str, Any], database: duckdb.DuckDBPyConnection
) -> None:
    """Serve requests until the input ends.

    Args:
      source: descriptor of the input.
      out: descriptor of the output.
      limits: the fields of WorkerLimits.
      database: from `open_database`, for the first request.
    """
    import duckdb

    may_use, replies = WorkerLimits(**limits), os.fdopen(out, "wb")
    requests: queue.SimpleQueue[RequestRows] = queue.SimpleQueue()
    reading = (os.fdopen(source, "rb"), requests)
    threading.Thread(target=_read_requests, args=reading, daemon=True).start()
    databases = Databases(may_use, database)
    while True:
        try:
            rows = requests.get(timeout=OPEN_AHEAD_AFTER_S)
        except queue.Empty:
            databases.open_ahead()
            rows = requests.get()
        reply, files = Reply(replies), rows.request.all_files
        try:
            with databases.session(files) as session:
                answer(session, rows, may_use, reply)
        except (duckdb.Error, MemoryError, RowsTooLarge, ResultTooLarge, ResultFailed) as error:
            rows.end()
            reply.end(_error_kind(error, files, may_use.temp_dir), str(error))
        else:
            reply.end()
