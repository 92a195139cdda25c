"""Power loss and failing calls: acknowledged is recovered, recovered was sent, and no holes."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shedder.archive.log.log import MARK, Log
from shedder.errors import DiskFull, StorageFailed
from tests.archive.power import PowerFailed, PowerFiles
from tests.scale import scaled
from tests.seeds import seed

SEGMENT = 2_000
STATES = scaled(10, 70)  # Disk states tried for each call at which power fails.


def body(sequence: int) -> bytes:
    return random.Random(sequence).randbytes(20 + 91 * (sequence % 11))


class Producer:
    """Sends records in groups of 1 to 3, and knows which were acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0

    def work(self, log: Log, groups: int = 12) -> None:
        for group in range(groups):
            for _ in range(1 + group % 3):
                self.sent = max(self.sent, log.next_sequence + 1)
                sequence = log.next_sequence
                log.append(1, [b"h", body(sequence)])
            log.sync()
            self.acknowledged = log.next_sequence
            if group in (4, 8):  # what the first one drops is written over before the second
                log.drop_before(self.acknowledged - 4)


def reopened(directory: Path) -> Log:
    """Open what a crash left, without waiting for a real disk."""
    return Log.open(directory, files=PowerFiles(directory), segment_bytes=SEGMENT)


def recovered(log: Log) -> list[int]:
    """Sequences in the log, marks included; bodies verified."""
    found = []
    for record in log.read():
        if record.kind != MARK:
            assert record.body.to_pybytes() == body(record.sequence)
        found.append(record.sequence)
    return found


def assert_prefix(log: Log, producer: Producer) -> None:
    found = recovered(log)
    assert found == list(range(log.first_sequence, log.next_sequence))
    assert producer.acknowledged <= log.next_sequence <= producer.sent
    assert log.recovery.damages == ()
    assert log.recovery.lost_segments == ()


def crash(tmp_path: Path, power_at: int, use: Callable[[PowerFiles], None]) -> PowerFiles | None:
    """Use a fresh directory until power fails; None when it did not."""
    root = tmp_path / f"{power_at}"
    root.mkdir()
    files = PowerFiles(root, power_at=power_at)
    try:
        use(files)
    except PowerFailed:
        return files
    return None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_power_loss_leaves_a_prefix_in_every_state(tmp_path):
    """Power fails at each call in turn; some possible states of each are tried, 5,000 nightly."""
    states = power_at = 0
    while True:
        producer = Producer()
        files = crash(
            tmp_path,
            power_at,
            lambda files, p=producer: p.work(
                Log.open(files.root, files=files, segment_bytes=SEGMENT)
            ),
        )
        if files is None:
            break
        for number in range(STATES):
            target = tmp_path / f"{power_at}-{number}"
            files.crash_into(target, seed("crash of a log", power_at, number))
            log = reopened(target)
            assert_prefix(log, producer)
            log.append(1, [b"h", body(log.next_sequence)])
            log.close()
            again = reopened(target)
            assert again.recovery.torn_bytes == 0
            assert again.recovery.damages == ()
            again.close()
            states += 1
        power_at += 1
    assert states > 70 * STATES


@pytest.mark.slow
def test_power_loss_while_recovering_from_a_power_loss_loses_nothing(tmp_path):
    producer = Producer()
    first = crash(
        tmp_path,
        70,
        lambda files: producer.work(Log.open(files.root, files=files, segment_bytes=SEGMENT)),
    )
    for number in range(12):
        power_at = 0
        while True:
            root = tmp_path / f"again-{number}-{power_at}"
            first.crash_into(root, seed("first crash", number))
            files = PowerFiles(root, power_at=power_at)
            try:
                Log.open(root, files=files)
                break
            except PowerFailed:
                pass
            target = tmp_path / f"third-{number}-{power_at}"
            files.crash_into(target, seed("second crash", number, power_at))
            log = reopened(target)
            assert_prefix(log, producer)
            log.close()
            power_at += 1
        assert power_at >= 4


@pytest.mark.slow
@pytest.mark.parametrize(("error", "forever"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_a_failing_call_is_a_clean_error_and_loses_nothing_acknowledged(tmp_path, error, forever):
    """Raise the index of the failing call until none fails, and then let power fail, too."""
    fail_at = 0
    kinds = set()
    while True:
        root = tmp_path / str(fail_at)
        root.mkdir()
        files = PowerFiles(root, fail_at=fail_at, error=error, forever=forever)
        producer = Producer()
        with suppress(StorageFailed, DiskFull):
            producer.work(Log.open(root, files=files, segment_bytes=SEGMENT))
        if files.failed is None:
            break
        kinds.add(files.failed)
        files.crash_into(tmp_path / f"{fail_at}-dark", seed("dark", error, fail_at))
        log = reopened(tmp_path / f"{fail_at}-dark")
        assert_prefix(log, producer)
        log.close()
        log = reopened(root)  # and without a power loss
        assert_prefix(log, producer)
        log.close()
        fail_at += 1
    assert {"write", "sync", "create", "sync_directory", "rename", "reuse"} <= kinds


def test_a_full_disk_refuses_and_then_goes_on(tmp_path):
    files = PowerFiles(tmp_path)
    log = Log.open(tmp_path, files=files)
    log.append(1, [b"h", body(0)])
    files.fail_next("write", errno.ENOSPC)
    with pytest.raises(DiskFull, match="no space for"):
        log.append(1, [b"h", body(1)])
    assert log.append(1, [b"h", body(1)]) == 1
    log.sync()
    log.close()
    again = Log.open(tmp_path)
    assert recovered(again) == [0, 1, 2]
    again.close()


def test_after_a_failed_fsync_nothing_is_taken_and_nothing_unsynced_is_served(tmp_path):
    files = PowerFiles(tmp_path)
    log = Log.open(tmp_path, files=files)
    log.append(1, [b"h", body(0)])
    log.sync()
    log.append(1, [b"h", body(1)])
    files.fail_next("sync")
    with pytest.raises(StorageFailed, match="fsync failed"):
        log.sync()
    for call in (log.sync, lambda: log.append(1, [b"h"])):
        with pytest.raises(StorageFailed, match="ingest has stopped"):
            call()
    assert recovered(log) == [0]  # reading goes on
    log.close()
    again = Log.open(tmp_path)
    assert recovered(again) == [0]
    again.close()


def test_pages_that_a_failed_fsync_left_clean_are_written_again_at_the_next_open(tmp_path):
    """fsync failed, the process died at once; then power failed after a second start."""
    files = PowerFiles(tmp_path)
    log = Log.open(tmp_path, files=files)
    log.append(1, [b"h", body(0)])
    log.sync()
    log.append(1, [b"h", body(1)])
    files.forget_unsynced()  # A failed fsync does this; a kill then prevents the cut.
    second = Log.open(tmp_path, files=files)
    assert recovered(second) == [0, 1]  # served from now on, so it has to be durable
    files.crash_into(tmp_path / "after", 1)
    third = Log.open(tmp_path / "after")
    assert recovered(third) == [0, 1]
    third.close()
