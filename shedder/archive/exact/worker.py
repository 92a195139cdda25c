"""The exact worker's own process: SQL over streams' runs and tails, inside a memory limit.

It is started as a script (see client.py) and imports nothing of Shedder, so that it is small and
quick to start. DuckDB is imported where it runs: the process that starts this one knows limits and
lengths from here, and does without. It reads requests from its standard input and writes replies to
what was its standard output; when the input ends it exits at once, also in the middle of a query,
so it never outlives its parent.

A request is a length (uint32, little-endian), a JSON object {sql, relations, beside, limits}, and
Arrow IPC streams: of each relation the tail, unless it is that of another relation, and, if it has
marked files, the positions of their deleted rows. A reply is a length and a JSON object {error,
message}. If error is null, an Arrow IPC stream of the result follows, batch by batch as DuckDB
produces it, and then a second length and JSON object {error, message, cut}: an error after the
first batch, or the limit that ended the result.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

LENGTH = struct.Struct("<I")
HEADER_BYTES_MAX = 64 << 20
WHOLE_BATCH_ROWS = 65_536  # Of a result that is sent when it is whole.
BATCH_ROWS = 8_192  # Of a result that is sent as it comes: 8 MiB of rows of 1 KiB.
POSITION_DIGITS = 20  # A run's file name begins with the position of its first row.


class ResultTooLarge(Exception):
    """The result does not fit into the bytes it may have."""


class ResultFailed(Exception):
    """DuckDB failed while it produced a result; pyarrow keeps nothing but the text."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a query may use; given as JSON in the first argument of the script."""

    memory_bytes: int
    threads: int
    temp_dir: str
    temp_bytes_max: int
    result_bytes_max: int


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """Limits at which a result is cut, with the rows before them as the result; None: no limit."""

    rows_max: int | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRelation:
    """One relation of a request.

    position: name of the relation's column of positions, which the tail and the dealt files have.
      For the other files, names and order of rows tell it. None: not wanted.
    marked: files in which rows are deleted; `deleted` has the positions of these rows.
    is_shared: several scans of the query read it.
    tail_of: name of an earlier relation whose tail is this one's, too; `tail` is None then.
    """

    name: str
    columns: list[str]
    position: str | None
    files: list[str]
    dealt: list[str]
    marked: list[str]
    is_shared: bool
    tail_of: str | None
    tail: pa.Table | None
    deleted: pa.Table | None


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
            *(name for relation in self.relations for name in (*relation.files, *relation.dealt)),
            *(name for names in self.beside.values() for name in names),
        ]


class Databases:
    """DuckDB databases of the process: one that can read the last request's files, one ahead.

    Connecting takes 12 ms of CPU, as long as a small query. What a database can read is locked, so
    a request of other files takes the database that was opened ahead. An error closes a database.
    """

    def __init__(self, limits: WorkerLimits) -> None:
        """Open no database yet."""
        self._limits = limits
        self._locked: duckdb.DuckDBPyConnection | None = None
        self._files: set[str] = set()
        self._ahead: duckdb.DuckDBPyConnection | None = None

    def open_ahead(self) -> None:
        """Open the database of the next request of other files, unless it is open."""
        if self._ahead is None:
            self._ahead = _opened(self._limits)

    @contextmanager
    def session(self, files: list[str]) -> Iterator[duckdb.DuckDBPyConnection]:
        """Connect to a database that can read these files and nothing else.

        The connection has no views and no tables, and drops its own at the end of the block.
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
        database.execute(f"SET GLOBAL allowed_paths = [{_quoted(files)}]")
        database.execute("SET GLOBAL enable_external_access = false")
        database.execute("SET GLOBAL lock_configuration = true")
        return database

    def _close_locked(self) -> None:
        if self._locked is not None:
            self._locked.close()
        self._locked = None


def _opened(limits: WorkerLimits) -> duckdb.DuckDBPyConnection:
    """Open a database that can read every file and has the settings of all queries."""
    import duckdb

    config: dict[str, Any] = {
        "memory_limit": f"{limits.memory_bytes // 1024}KiB",
        "threads": limits.threads,
        "temp_directory": limits.temp_dir,
        "max_temp_directory_size": f"{limits.temp_bytes_max // 1024}KiB",
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


def answer(
    database: duckdb.DuckDBPyConnection, request: Request, limits: WorkerLimits, reply: Reply
) -> None:
    """Run one query in a session of its own, which can read its files and nothing else."""
    for number, relation in enumerate(request.relations):
        is_joined = relation.is_shared or len(request.relations) > 1
        if relation.tail is not None:
            _give_tail(database, relation.name, relation.tail, is_joined=is_joined)
        if relation.deleted is not None:
            database.register(_deleted(number), relation.deleted)
        source = _relation(relation, number)
        database.execute(f"CREATE TEMP VIEW {_name(relation.name)} AS {source}")
    for name, files in request.beside.items():
        options = "hive_partitioning = false, union_by_name = true"
        source = f"read_parquet([{_quoted(files)}], {options})"
        database.execute(f"CREATE TEMP VIEW {_name(name)} AS SELECT * FROM {source}")  # noqa: S608
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


def _give_tail(
    database: duckdb.DuckDBPyConnection, name: str, tail: pa.Table, *, is_joined: bool
) -> None:
    """Make the tail of a relation known by its name.

    DuckDB 2.0.0 loses an IS NULL filter that it pushes into an Arrow table where it makes an
    anti-join of LEFT JOIN and IS NULL. So the tails of joined relations are copied.
    """
    if not is_joined:
        database.register(_tail(name), tail)
        return
    database.register("__given", tail)
    database.execute(f"CREATE TEMP TABLE {_name(_tail(name))} AS SELECT * FROM __given")  # noqa: S608
    database.unregister("__given")


def _tail(relation: str) -> str:
    return f"__tail_{relation}"


def _deleted(number: int) -> str:
    return f"__deleted_{number}"


def _relation(relation: RequestRelation, number: int) -> str:
    """Ordered and dealt files, each without and with deleted rows, and the tail."""
    columns = ", ".join(_name(name) for name in relation.columns)
    of_ordered = of_others = ""
    if relation.position is not None:
        of_ordered = f", {_OF_ORDER} AS {_name(relation.position)}"
        of_others = f", {_name(relation.position)}"
    parts = []
    marked = set(relation.marked)
    for files, is_dealt in ((relation.files, False), (relation.dealt, True)):
        more = of_others if is_dealt else of_ordered
        for deleted in (False, True):
            some = [name for name in files if (name in marked) == deleted]
            if some:
                numbered = not is_dealt and (deleted or bool(more))
                source = _source(some, numbered=numbered)
                if deleted:
                    position = _OF_ORDER if numbered else "__position"
                    gone = f"SELECT __position FROM {_deleted(number)}"  # noqa: S608
                    source = f"{source} WHERE {position} NOT IN ({gone})"
                parts.append(f"SELECT {columns}{more} FROM {source}")  # noqa: S608
    tail = _name(_tail(relation.tail_of or relation.name))
    parts.append(f"SELECT {columns}{of_others} FROM {tail}")  # noqa: S608  (quoted)
    return " UNION ALL ".join(parts)


def _source(files: list[str], *, numbered: bool) -> str:
    """Files, by whose names and order of rows positions are known if they are to be numbered."""
    options = "hive_partitioning = false"
    if numbered:
        options += f", filename = '{_FILE}', file_row_number = true"
    return f"read_parquet([{_quoted(files)}], {options})"


_FILE = "__file"  # The name that DuckDB gives it is one that streams have, too.
_OF_ORDER = (
    f"CAST(substr(parse_filename({_FILE}), 1, {POSITION_DIGITS}) AS BIGINT) + file_row_number"
)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(names: list[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)


def _error_kind(error: BaseException, files: list[str]) -> str:
    """Return the word by which client.py chooses the class of the error."""
    import duckdb

    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError, ResultTooLarge)):
        return "budget"
    if isinstance(error, ResultFailed) and str(error).startswith("Out of Memory"):
        return "budget"
    if isinstance(error, (duckdb.Error, ResultFailed)) and any(
        name in str(error) for name in files
    ):
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


def _read_request(source: Any) -> Request:
    (size,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    assert size <= HEADER_BYTES_MAX, size
    header = json.loads(_exactly(source, size))
    relations = [_read_relation(source, said) for said in header["relations"]]
    limits = header["limits"]
    return Request(
        header["sql"],
        relations,
        header["beside"],
        None if limits is None else ResultLimits(**limits),
    )


def _read_relation(source: Any, said: dict[str, Any]) -> RequestRelation:
    tail = deleted = None
    if said["tail_of"] is None:
        with pa.ipc.open_stream(source) as reader:
            tail = reader.read_all()
    if said["marked"]:
        with pa.ipc.open_stream(source) as reader:
            deleted = reader.read_all()
    return RequestRelation(**said, tail=tail, deleted=deleted)


def _read_requests(source: BinaryIO, requests: queue.SimpleQueue[Request]) -> None:
    """Run in a thread of its own, so that the end of the input is seen during a query."""
    try:
        while True:
            requests.put(_read_request(source))
    except (OSError, pa.ArrowException):
        os._exit(0)


def main() -> None:
    """Serve requests until the input ends."""
    import duckdb

    limits = WorkerLimits(**json.loads(sys.argv[1]))
    Path(limits.temp_dir).mkdir(parents=True, exist_ok=True)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get into the replies
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(sys.stdin.buffer, requests), daemon=True).start()
    databases = Databases(limits)
    while True:
        databases.open_ahead()
        request = requests.get()
        reply = Reply(out)
        try:
            with databases.session(request.all_files) as database:
                answer(database, request, limits, reply)
        except (duckdb.Error, MemoryError, ResultTooLarge, ResultFailed) as error:
            reply.end(_error_kind(error, request.all_files), str(error))
        else:
            reply.end()


if __name__ == "__main__":
    main()
