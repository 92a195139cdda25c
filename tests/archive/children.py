"""What stores do in processes of their own, until one of their system calls fails or kills them.

Each prints what is done. Exit status 3: a clean error.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from shedder.archive.archive_store import Store
from shedder.archive.catalog.catalog import Catalog
from shedder.archive.layouts.readable_part import part_of
from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import Entry, LogQueue
from shedder.archive.log.records import Batch, RecordType
from shedder.archive.operations.backup import restore
from shedder.archive.tasks.progress import Progress
from shedder.cql.statements.archive_layout import Eager, Hybrid, Lazy, Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.errors import (
    CommitUnknown,
    DiskFull,
    ResourcesShort,
    ShedderError,
    StorageFailed,
)
from shedder.streams.batches import encode
from tests.archive.schemas import SCHEMA, batch
from tests.archive.worlds import checkpoint, delete, ingest, purge, recover


@contextmanager
def created(directory: Path, schema: StreamSchema) -> Iterator[Store]:
    """A store with a stream, closed at the end; refusals of the system are told and end it."""
    try:
        store = recover(directory)
        if not store.streams():
            store.create_stream(schema)
        print("created", flush=True)
        yield store
        store.close()
    except ShedderError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(3)


def write(directory: Path) -> None:
    """Six batches, two runs, a checkpoint after each run."""
    with created(directory, SCHEMA) as store:
        for number in range(6):
            _write(store, number)


def write_and_retain(directory: Path) -> None:
    """The same into lazy copies, then vacuum and retention."""
    with created(directory, replace(SCHEMA, layout=Lazy())) as store:
        for number in range(6):
            _write(store, number)
        part = part_of(store.runs(1)[0], 0.5)
        store.layouts.note_scans([(part, 0.5)])
        store.layouts.vacuum(store.runs(1)[0])
        store.retention.apply(1, 60_000)
        print("retained", flush=True)


def _write(store: Store, number: int) -> None:
    first = store.end_position(1)
    content = batch(first, 20)
    header = Batch(1, "p", 0, number, first, 20, 0)
    sequence = store.log.append(RecordType.BATCH, [header.to_bytes(), encode(content)])
    store.log.sync()
    print(first + 20, flush=True)
    store.add(1, first, content, sequence=sequence)
    if number in (2, 4):
        store.cut(1)
        checkpoint(store, sequence + 1, {"stream/1": b"x"})


def relay(directory: Path) -> None:
    """A batch, a run, and all runs in another layout; three times."""
    with created(directory, replace(SCHEMA, layout=Plain())) as store:
        for layout in (Hybrid(3, 1), Lazy(), Eager((0.5,))):
            ingest(store, store.end_position(1), 20)
            print(store.end_position(1), flush=True)
            store.cut(1)
            store.set_layout(1, layout)
            for run in store.layouts.unlike(1):
                store.layouts.rewrite(run)
            for reduction in (0.4, 0.7):
                store.layouts.note_scans(
                    [(part_of(run, reduction), reduction) for run in store.runs(1)]
                )
                for run in store.layouts.waste(1):
                    store.layouts.vacuum(run)


def commit_and_die(directory: Path) -> None:
    """Checkpoints 1, 2, …, 6 of a catalog, each failed or durable; it is not closed."""
    try:
        catalog = Catalog.open(directory / "catalog.sqlite")
    except StorageFailed:
        sys.exit(3)
    for sequence in range(1, 7):
        try:
            catalog.write_checkpoint(sequence, {"part": b"x" * 10_000 * sequence})
            print(sequence, flush=True)
        except CommitUnknown:
            print("unknown", flush=True)
            break
        except StorageFailed:
            print("failed", flush=True)
            break
    os._exit(0)


def commit_much(directory: Path) -> None:
    """A checkpoint of 17 MB, which failed for lack of memory or is durable; it is not closed."""
    catalog = Catalog.open(directory / "catalog.sqlite")
    try:
        catalog.write_checkpoint(1, {"part": b"x" * 17_000_000})
        print("durable", flush=True)
    except ResourcesShort:
        print("failed", flush=True)
    os._exit(0)


def drop_and_cut(directory: Path) -> None:
    """Drop a stream; if the outcome is unknown, ingest and cut a run, which is the next commit.

    It is not closed.
    """
    with created(directory, SCHEMA) as store:
        ingest(store, 0, 20)
        store.cut(1)
        ingest(store, 20, 10)
        try:
            store.drop_stream(1)
            print("dropped", flush=True)
        except CommitUnknown:
            print("unknown", flush=True)
            ingest(store, 30, 10)
            store.cut(1)
            print("cut", flush=True)
        os._exit(0)


def delete_and_purge(directory: Path) -> None:
    """Two runs; every other row of the first is deleted, and the whole second; then a purge."""
    with created(directory, replace(SCHEMA, layout=Hybrid(3, 1))) as store:
        for first in (0, 20):
            ingest(store, first, 20)
            print(first + 20, flush=True)
            store.cut(1)
        delete(store, lambda place: place % 2 == 0 or place >= 20)
        print("deleted", flush=True)
        purge(store)


def ingest_for_ever(directory: Path) -> None:
    """Three batches at a time through the group commit; the end of what is durable is told."""
    store = recover(directory)
    if not store.streams():
        store.create_stream(SCHEMA)

    def durable(entries: list[Entry]) -> None:
        for entry in entries:
            header, content = entry.token
            store.add(1, header.first_position, content, sequence=entry.sequence)
        if store.tail_rows(1) > 300:
            store.cut(1)
            checkpoint(store, entries[-1].sequence + 1, {"stream/1": b"x"})

    queue = LogQueue()
    GroupCommit(queue, store.log, durable).start()
    first = store.end_position(1)
    while True:
        waiting = []
        for _ in range(3):
            content = batch(first, 20)
            header = Batch(1, "p", 0, first, first, 20, 0)
            parts = [header.to_bytes(), encode(content)]
            waiting.append(queue.submit(RecordType.BATCH, parts, (header, content)))
            first += 20
        for future in waiting:
            future.result()
        print(first, flush=True)


def fill_the_log(directory: Path) -> None:
    """Append until a file may not grow further, then, when it may, once more."""
    log = Log.open(directory)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    written = 0
    try:
        while True:
            log.append(1, [b"h", bytes(999)])
            written += 1
    except DiskFull:
        pass
    log.sync()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.append(1, [b"h", b"after"])
    log.sync()
    print(written)


class _Killed(Progress):
    """Kills the process at one of its steps."""

    def __init__(self, step: int) -> None:
        super().__init__("restore", "bytes")
        self._left = step

    def advance(self, amount: int = 0) -> None:
        super().advance(amount)
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), 9)


def restore_until(step: int, backup: Path, target: Path) -> None:
    """Restore a backup, and be killed at one of the steps."""
    restore(backup, target, verify=False, progress=_Killed(step))
