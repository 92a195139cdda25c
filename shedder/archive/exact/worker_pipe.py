"""Requests to the exact worker's process and its replies, on the pipes between the two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from shedder.archive.exact.relation import ExactRelation
from shedder.archive.exact.relation_sql import absolute, relation_sql
from shedder.archive.exact.worker import LENGTH, ResultLimits
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import (
    BudgetExceeded,
    CorruptData,
    DiskFull,
    InternalError,
    ShedderError,
    StorageFailed,
)

_ERRORS: dict[str, Callable[[str], ShedderError]] = {
    "budget": BudgetExceeded,
    "files": CorruptData,
    "disk full": lambda message: DiskFull(
        f"no space for rows that the query spills: {message}; free some there, set "
        "exact_memory_bytes higher, or ask for fewer rows"
    ),
    "disk": lambda message: StorageFailed(f"cannot spill rows of the query: {message}"),
    "bug": InternalError,
}


class ResultReader:
    """Batches of a query's result, as the process sends them.

    schema: of the batches.
    cut: after the last batch, the limit that ended the result, `rows` or `bytes`; empty: none did.
    is_over: the reply was read to its end.
    """

    def __init__(self, source: Any) -> None:
        """Wait for the head of a result."""
        self._source = source
        self.cut = ""
        self.is_over = False
        self._read_header()
        with of_the_process():
            self._batches = pa.ipc.open_stream(source)
        self.schema = self._batches.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            with of_the_process():
                batch = next(self._batches, None)
            if batch is None:
                break
            yield batch
        self.cut = self._read_header()
        self.is_over = True

    def _read_header(self) -> str:
        """Read a header of the reply: the limit that ended the result."""
        with of_the_process():
            (size,) = LENGTH.unpack(_exactly(self._source, LENGTH.size))
            said = json.loads(_exactly(self._source, size))
        if said["error"] is not None:
            raise QueryFailed(_ERRORS[said["error"]](said["message"].splitlines()[0]))
        cut: str = said["cut"]
        return cut


class ProcessEnded(Exception):
    """A pipe to or from the process broke."""


class QueryFailed(Exception):
    """The process has answered with an error, and is ready for the next query."""

    def __init__(self, error: ShedderError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def of_the_process() -> Iterator[None]:
    """Raise ProcessGone for what a broken pipe raises."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as broken:
        raise ProcessEnded from broken


@dataclass(frozen=True, slots=True, eq=False)
class ExactRequest:
    """One query, as `worker.Request` has it."""

    sql: str
    relations: Sequence[ExactRelation]
    limits: ResultLimits | None
    beside: Mapping[str, Sequence[Path]]

    def header(self) -> dict[str, Any]:
        """The request without rows."""
        return {
            "sql": self.sql,
            "relations": [_said(relation) for relation in self.relations],
            "beside": {name: absolute(paths) for name, paths in self.beside.items()},
            "limits": None if self.limits is None else asdict(self.limits),
        }


def _said(relation: ExactRelation) -> dict[str, Any]:
    return {
        "name": relation.name,
        "source": relation_sql(relation),
        "files": absolute([*relation.files, *relation.dealt]),
        "is_marked": bool(relation.without.files),
        "is_shared": relation.is_shared,
        "tail_of": relation.tail_of,
    }


def send_request(out: Any, request: ExactRequest, rows: Sequence[Sequence[pa.RecordBatch]]) -> None:
    """Write a request, with the rows of each of its relations that are in no file."""
    text = json.dumps(request.header()).encode()
    out.write(LENGTH.pack(len(text)) + text)
    for relation, batches in zip(request.relations, rows, strict=True):
        if relation.tail_of is None:
            with pa.ipc.new_stream(out, relation.rows_schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        if relation.without.files:
            deleted = pa.record_batch([pa.array(relation.without.positions)], [POSITION])
            with pa.ipc.new_stream(out, deleted.schema) as writer:
                writer.write_batch(deleted)
    out.flush()


def _exactly(source: Any, size: int) -> bytes:
    data: bytes = source.read(size)
    if len(data) < size:
        raise EOFError("the exact worker is gone")
    return data
