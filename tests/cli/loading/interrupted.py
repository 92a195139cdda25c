"""A database whose connection is lost at the n-th push, before or after the push is durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shedder.cli.files.row_file import FileColumns, RowFile
from shedder.cli.loading.load_progress import shown_progress
from shedder.cli.loading.load_sources import LoadOptions, sources
from shedder.cli.loading.loads import FileLoad, spooled
from shedder.errors import Unavailable
from shedder.queries.answers.database_api import Database, NamedProducer, Receipt


@dataclass
class Fault:
    """The connection is lost at this push, counted from 0; None: never."""

    push: int | None = None
    is_stored: bool = False
    pushes: int = 0


class InterruptedDatabase:
    """What `FileLoad` uses of a database, with a fault."""

    def __init__(self, database: Database, fault: Fault) -> None:
        self.database = database
        self.fault = fault

    def producer(self, stream: str, name: str, *, epoch: int | None = None) -> Any:
        return InterruptedProducer(self.database.producer(stream, name, epoch=epoch), self.fault)


class InterruptedProducer:
    """A producer with a fault."""

    def __init__(self, producer: NamedProducer, fault: Fault) -> None:
        self.producer = producer
        self.fault = fault
        self.epoch = producer.epoch
        self.next_sequence = producer.next_sequence

    def push(self, data: Any, *, sequence: int | None = None) -> int:
        is_lost = self.fault.pushes == self.fault.push
        self.fault.pushes += 1
        if is_lost and not self.fault.is_stored:
            raise Unavailable("the connection is lost")
        number = self.producer.push(data, sequence=sequence)
        if is_lost:
            self.producer.flush()
            raise Unavailable("the connection is lost, and the receipt")
        return number

    def flush(self) -> Receipt:
        return self.producer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.producer.__exit__(None, None, None)


def load(
    database: Database,
    stream: str,
    files: Sequence[RowFile],
    options: LoadOptions,
    directory: Path,
    fault: Fault,
    hashes: Sequence[str] = ("",),
) -> None:
    """Load files as `shedder push` does, over a connection with a fault.

    directory: an empty one, for the rows of the files.
    hashes: of options that read the same rows of each file.
    """
    schema = database.schema(stream)
    reading = FileColumns({column.name: column.type for column in schema.columns})
    found = sources(database, stream, files, options, [hashes] * len(files))
    parts = []
    for part, each in enumerate((found.interrupted, found.files)):
        place = directory / str(part)
        place.mkdir()
        parts.append(spooled(each, reading, schema, options, place, shown_progress))
    FileLoad(InterruptedDatabase(database, fault), stream, "ts", options).run(parts, shown_progress)
