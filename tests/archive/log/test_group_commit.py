"""Group commit: one order, acknowledged when durable, and no hole after a failure."""

import errno
import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import BYTES_MAX, Entry, LogQueue
from shedder.archive.log.records import (
    FOLLOW,
    Batch,
    Built,
    Heartbeat,
    Idle,
    PushEnd,
    RecordType,
)
from shedder.archive.log.setting_changes import (
    BudgetAltered,
    QueryAltered,
    QuotasAltered,
    alteration_from_body,
    alteration_to_parts,
)
from shedder.errors import BadSetting, DiskFull, Draining, Overloaded, StorageFailed
from tests.archive.power import PowerFiles


class Applied:
    """The engine's side: what was handed on, in groups; can be made to wait."""

    def __init__(self) -> None:
        self.groups: list[list[Entry]] = []
        self.failed: list[tuple[list[Entry], Exception]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def durable(self, entries: list[Entry]) -> None:
        assert not any(entry.future.done() for entry in entries)
        self.groups.append(entries)
        self.entered.set()
        self.gate.wait()

    def lost(self, entries: list[Entry], error: Exception) -> None:
        assert not any(entry.future.done() for entry in entries)
        self.failed.append((entries, error))

    @property
    def tokens(self) -> list[object]:
        return [entry.token for group in self.groups for entry in group]


def opened(
    directory: Path, files: PowerFiles | None = None, bytes_max: int = BYTES_MAX
) -> tuple[Log, Applied, LogQueue, GroupCommit]:
    log = Log.open(directory, files=PowerFiles(directory) if files is None else files)
    applied = Applied()
    queue = LogQueue(bytes_max)
    commit = GroupCommit(queue, log, applied.durable, applied.lost)
    commit.start()
    return log, applied, queue, commit


def hold(applied: Applied, queue: LogQueue) -> Future[int]:
    """Make the disk thread wait with one record in its hands, so that others gather."""
    applied.gate.clear()
    first = queue.submit(1, [b"h", b"first"], "first")
    applied.entered.wait()
    return first


def test_records_are_handed_on_in_order_and_acknowledged_with_their_sequences(tmp_path):
    log, applied, queue, commit = opened(tmp_path)
    futures = [queue.submit(1, [b"h", bytes([n])], n) for n in range(50)]
    assert [future.result() for future in futures] == list(range(50))
    assert applied.tokens == list(range(50))
    commit.close()
    assert [record.body.to_pybytes() for record in log.read()] == [bytes([n]) for n in range(50)]
    log.close()


def test_those_that_wait_share_one_fsync(tmp_path):
    log, applied, queue, commit = opened(tmp_path)
    hold(applied, queue)
    futures = [queue.submit(1, [b"h"], n) for n in range(20)]
    applied.gate.set()
    for future in futures:
        future.result()
    assert [len(group) for group in applied.groups] == [1, 20]
    commit.close()
    log.close()


def test_many_threads_get_one_order(tmp_path):
    log, applied, queue, commit = opened(tmp_path)
    results: list[tuple[str, int]] = []

    def send(name: str) -> None:
        parts = [b"h", name.encode()]
        results.extend((name, queue.submit(1, parts, name).result()) for _ in range(50))

    threads = [threading.Thread(target=send, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commit.close()
    order = [name for name, _ in sorted(results, key=lambda item: item[1])]
    assert order == applied.tokens == [record.body.to_pybytes().decode() for record in log.read()]
    log.close()


def test_too_many_bytes_on_their_way_are_refused_and_then_taken_again(tmp_path):
    log, applied, queue, commit = opened(tmp_path, bytes_max=100)
    hold(applied, queue)  # 6 bytes
    waiting = queue.submit(1, [bytes(94)])
    with pytest.raises(Overloaded, match="100 bytes wait for the disk; 1 more"):
        queue.submit(1, [b"x"])
    applied.gate.set()
    assert waiting.result() == 1
    assert queue.submit(1, [bytes(100)]).result() == 2
    commit.close()
    log.close()


def test_one_record_over_the_limit_is_taken_when_nothing_else_waits(tmp_path):
    log, _, queue, commit = opened(tmp_path, bytes_max=10)
    assert queue.submit(1, [bytes(1000)]).result() == 0
    commit.close()
    log.close()


def test_close_drains_and_then_refuses(tmp_path):
    log, applied, queue, commit = opened(tmp_path)
    first = hold(applied, queue)
    second = queue.submit(1, [b"h"])
    applied.gate.set()
    commit.close()
    assert (first.result(0), second.result(0)) == (0, 1)
    with pytest.raises(Draining):
        queue.submit(1, [b"h"])
    log.close()


def test_a_full_disk_fails_all_that_wait_behind_it_and_then_goes_on(tmp_path):
    files = PowerFiles(tmp_path)
    log, applied, queue, commit = opened(tmp_path, files)
    hold(applied, queue)
    futures = [queue.submit(1, [b"h"], n) for n in range(3)]
    files.fail_in(1, errno.ENOSPC)  # the second of the three
    applied.gate.set()
    assert futures[0].result() == 1
    for future in futures[1:]:
        with pytest.raises(DiskFull):
            future.result()
    ((lost, error),) = applied.failed
    assert [entry.token for entry in lost] == [1, 2]
    assert isinstance(error, DiskFull)
    assert applied.tokens == ["first", 0]
    assert queue.submit(1, [b"h"], "after").result() == 2
    commit.close()
    log.close()


def test_a_failed_fsync_acknowledges_nothing_and_stops_the_log(tmp_path):
    files = PowerFiles(tmp_path)
    log, applied, queue, commit = opened(tmp_path, files)
    hold(applied, queue)
    futures = [queue.submit(1, [b"h"], n) for n in range(2)]
    files.fail_next("sync")
    applied.gate.set()
    for future in futures:
        with pytest.raises(StorageFailed, match="fsync failed"):
            future.result()
    with pytest.raises(StorageFailed, match="ingest has stopped"):
        queue.submit(1, [b"h"]).result()
    assert applied.tokens == ["first"]
    assert len(applied.failed) == 2
    commit.close()
    log.close()
    again = Log.open(tmp_path)
    assert [record.sequence for record in again.read()] == [0]
    again.close()


def test_what_was_handed_in_cannot_be_cancelled(tmp_path):
    log, applied, queue, commit = opened(tmp_path)
    hold(applied, queue)
    future = queue.submit(1, [b"h"])
    assert not future.cancel()
    applied.gate.set()
    assert future.result() == 1
    commit.close()
    log.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_handler_stops_the_thread_and_everyone_is_told(tmp_path):
    log = Log.open(tmp_path)

    def broken(entries: list[Entry]) -> None:
        raise ZeroDivisionError

    queue = LogQueue()
    commit = GroupCommit(queue, log, broken)
    commit.start()
    with pytest.raises(ZeroDivisionError):
        queue.submit(1, [b"h"]).result()
    with pytest.raises(StorageFailed, match="ZeroDivisionError"):
        queue.submit(1, [b"h"])
    commit.close()
    log.close()


def test_a_writer_waits_until_its_record_is_durable_behind_what_waited(tmp_path):
    files = PowerFiles(tmp_path)
    log, applied, queue, commit = opened(tmp_path, files)
    first = queue.submit(1, [b"h", b"first"], "first")
    assert queue.write(1, [b"h", b"second"], "second") == 1
    assert first.result(0) == 0
    assert applied.tokens == ["first", "second"]
    files.fail_next("sync", errno.ENOSPC)
    with pytest.raises((DiskFull, StorageFailed)):
        queue.write(1, [b"h", b"third"], "third")
    assert applied.tokens == ["first", "second"]
    commit.close()
    log.close()


@pytest.mark.parametrize(
    "alteration",
    [
        QueryAltered(2**32 - 1, "requête \U0001f600", 0.1 + 0.2, active=False),
        QueryAltered(1, "q" * 100_000, 3, active=True),
        BudgetAltered(2**63 - 1),
        BudgetAltered(None),
        QuotasAltered({"é": {"rows_per_s": None, "weight": 1e-300}, "b": {"queries": 0}}),
        QuotasAltered({}),
    ],
)
def test_alterations_come_back_as_they_went_in(alteration):
    header, body = alteration_to_parts(alteration, -5)
    assert len(header) == 8
    assert alteration_from_body(body) == alteration


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(BadSetting, match="0"):
        LogQueue(0)


def test_headers_come_back_as_they_went_in():
    batch = Batch(2**32 - 1, "producteur é", 2**64 - 1, 2**64 - 2, 2**63, 65_536, -5, 1)
    assert Batch.from_bytes(batch.to_bytes()) == batch
    assert batch.end_position == 2**63 + 65_536
    for push in (PushEnd(2**62, 2**64 - 1, True), PushEnd(0, None, False)):
        pushed = replace(batch, push=push)
        assert Batch.from_bytes(pushed.to_bytes()) == pushed
        built = Built(7, "é", 2**62, 2**62, 2**62, 2**40, -5, FOLLOW, push)
        assert Built.from_bytes(built.to_bytes()) == built
    heartbeat = Heartbeat(7, -(2**63), 2**63 - 1)
    assert Heartbeat.from_bytes(heartbeat.to_bytes()) == heartbeat
    idle = Idle(2**32 - 1, -(2**63))
    assert Idle.from_bytes(idle.to_bytes()) == idle
    assert [kind.value for kind in RecordType] == [*range(10)]
