"""The exact worker's own process: SQL over a stream's runs and tail, inside a memory limit.

It is started as a script (see client.py) and imports nothing of Shedder, so that it is small and
quick to start. DuckDB is imported where it runs: the process that starts this one knows limits and
lengths from here, and does without. It reads requests from its standard input and writes replies to
what was its standard output; when the input ends it exits at once, also in the middle of a query,
so it never outlives its parent.

A request is a length (uint32, little-endian), a JSON object {sql, files, dealt, columns, position,
marked, beside} and an Arrow IPC stream: the tail; if there are marked files, a second one: the
positions of their deleted rows. A reply is a length and a JSON object {error, message}, and when
error is null an Arrow IPC stream: the result.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

LENGTH = struct.Struct("<I")
HEADER_BYTES_MAX = 64 << 20
BATCH_ROWS = 65_536
POSITION_DIGITS = 20  # A run's file name begins with the position of its first row.


class ResultTooLarge(Exception):
    """The result does not fit into the bytes it may have."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a query may use; given as JSON in the first argument of the script."""

    memory_bytes: int
    threads: int
    temp_dir: str
    temp_bytes_max: int
    result_bytes_max: int


@dataclass(frozen=True, slots=True)
class Request:
    """One query: `sql` over the relation `stream`.

    position: the relation's column of positions, which the tail and the dealt files have; of the
    other files, names and order of rows tell it. None: not wanted. marked: files in which rows are
    deleted, those whose positions `deleted` has. beside: further
    relations, of all columns of files.
    """

    sql: str
    files: list[str]
    dealt: list[str]
    columns: list[str]
    position: str | None
    tail: pa.Table
    marked: list[str]
    deleted: pa.Table | None
    beside: dict[str, list[str]]

    @property
    def all_files(self) -> list[str]:
        """All that may be read."""
        return [
            *self.files,
            *self.dealt,
            *(name for names in self.beside.values() for name in names),
        ]


def answer(request: Request, limits: WorkerLimits) -> pa.Table:
    """Run one query in a database of its own, which can read these files and nothing else."""
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
    }
    with duckdb.connect(config=config) as database:
        database.execute("SET TimeZone = 'UTC'")
        # By a file's statistics, which leave NaN out, DuckDB takes x = NaN for never true, and
        # x > 0 for always true where all numbers are larger.
        database.execute("SET disabled_optimizers = 'statistics_propagation'")
        database.execute(f"SET allowed_paths = [{_quoted(request.all_files)}]")
        database.execute("SET enable_external_access = false")
        database.register("tail", request.tail)
        if request.deleted is not None:
            database.register("deleted", request.deleted)
        database.execute(f"CREATE TEMP VIEW stream AS {_relation(request)}")
        for name, files in request.beside.items():
            options = "hive_partitioning = false, union_by_name = true"
            source = f"read_parquet([{_quoted(files)}], {options})"
            database.execute(f"CREATE TEMP VIEW {_name(name)} AS SELECT * FROM {source}")  # noqa: S608
        database.execute("SET lock_configuration = true")
        return _bounded(database.sql(request.sql), limits.result_bytes_max)


def _bounded(result: duckdb.DuckDBPyRelation, bytes_max: int) -> pa.Table:
    reader = result.to_arrow_reader(BATCH_ROWS)
    batches, size = [], 0
    for batch in reader:
        size += batch.nbytes
        if size > bytes_max:
            raise ResultTooLarge(f"the result has more than {bytes_max:,} bytes")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _relation(request: Request) -> str:
    """Ordered and dealt files, each without and with deleted rows, and the tail."""
    columns = ", ".join(_name(name) for name in request.columns)
    of_ordered = of_others = ""
    if request.position is not None:
        of_ordered = f", {_OF_ORDER} AS {_name(request.position)}"
        of_others = f", {_name(request.position)}"
    parts = []
    marked = set(request.marked)
    for files, is_dealt in ((request.files, False), (request.dealt, True)):
        more = of_others if is_dealt else of_ordered
        for deleted in (False, True):
            some = [name for name in files if (name in marked) == deleted]
            if some:
                numbered = not is_dealt and (deleted or bool(more))
                source = _source(some, numbered=numbered, deleted=deleted)
                parts.append(f"SELECT {columns}{more} FROM {source}")  # noqa: S608
    parts.append(f"SELECT {columns}{of_others} FROM tail")  # noqa: S608  (quoted)
    return " UNION ALL ".join(parts)


def _source(files: list[str], *, numbered: bool, deleted: bool) -> str:
    """Files, by whose names and order of rows positions are known if they are to be numbered."""
    options = "hive_partitioning = false"
    if numbered:
        options += f", filename = '{_FILE}', file_row_number = true"
    source = f"read_parquet([{_quoted(files)}], {options})"
    if not deleted:
        return source
    position = _OF_ORDER if numbered else "__position"
    return f"{source} WHERE {position} NOT IN (SELECT __position FROM deleted)"  # noqa: S608


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
    if isinstance(error, duckdb.Error) and any(name in str(error) for name in files):
        return "files"
    return "bug"


def _reply(out: Any, header: dict[str, Any], table: pa.Table | None) -> None:
    text = json.dumps(header).encode()
    out.write(LENGTH.pack(len(text)) + text)
    if table is not None:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    out.flush()


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        os._exit(0)  # the parent is gone or has closed the pipe
    return data


def _read_request(source: Any) -> Request:
    (size,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    assert size <= HEADER_BYTES_MAX, size
    header = json.loads(_exactly(source, size))
    with pa.ipc.open_stream(source) as reader:
        tail = reader.read_all()
    position = header.get("position")
    files, dealt = header["files"], header["dealt"]
    marked, deleted = header["marked"], None
    if marked:
        with pa.ipc.open_stream(source) as reader:
            deleted = reader.read_all()
    columns = header["columns"]
    beside = header["beside"]
    return Request(header["sql"], files, dealt, columns, position, tail, marked, deleted, beside)


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
    while True:
        request = requests.get()
        try:
            table = answer(request, limits)
        except (duckdb.Error, MemoryError, ResultTooLarge, pa.ArrowException) as error:
            kind = _error_kind(error, request.all_files)
            _reply(out, {"error": kind, "message": str(error)}, None)
        else:
            _reply(out, {"error": None, "message": ""}, table)


if __name__ == "__main__":
    main()
