"""A log that gets no descriptor for its next segment goes on once there is one."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import contextmanager, suppress

import pytest

from shedder.archive.files.file_system import OsFiles
from shedder.archive.files.shortage import shortage_in
from shedder.archive.log.descriptor_reserve import DescriptorReserve
from shedder.archive.log.log import Log
from shedder.errors import DiskFull, Overloaded, ResourcesShort, StorageFailed
from shedder.wire.status import code_of, from_status, to_status

BODY = bytes(600)
SEGMENT_BYTES = 1_000  # One record.


class ShortFiles(OsFiles):
    """A file system that opens no file for writing while `errno` is set."""

    errno: int | None = None

    def create(self, path):
        self._check()
        return super().create(path)

    def reuse(self, path):
        self._check()
        return super().reuse(path)

    def _check(self):
        if self.errno is not None:
            raise OSError(self.errno, os.strerror(self.errno))


def sequences(directory):
    log = Log.open(directory)
    try:
        return [record.sequence for record in log.read() if record.kind]
    finally:
        log.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("drops", [False, True])
def test_a_log_short_of_resources_refuses_and_goes_on_by_itself(tmp_path, number, drops):
    files = ShortFiles()
    log = Log.open(tmp_path, files=files, segment_bytes=SEGMENT_BYTES)
    for _ in range(3):
        log.append(1, [b"h", BODY])
    log.sync()
    if drops:
        log.drop_before(2)  # The next segment is written over an older one.
    files.errno = number
    for _ in range(2):
        said = f"cannot write the next segment of {tmp_path} now: .*{os.strerror(number)}"
        with pytest.raises(ResourcesShort, match=said) as found:
            log.append(1, [b"h", BODY])
        assert isinstance(found.value, DiskFull)
        assert isinstance(found.value, Overloaded)
    files.errno = None
    assert log.append(1, [b"h", BODY]) == 3
    log.sync()
    log.close()
    assert sequences(tmp_path) == ([2, 3] if drops else [0, 1, 2, 3])
    assert not list(tmp_path.glob("*.spare"))


@contextmanager
def no_descriptors():
    """Nothing can be opened inside of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_segments_begin_with_the_descriptors_that_are_held_for_them(tmp_path):
    log = Log.open(tmp_path, segment_bytes=SEGMENT_BYTES)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        for _ in range(5):
            log.append(1, [b"h", BODY])
        log.sync()
    log.close()
    assert sequences(tmp_path) == list(range(5))


def opened(path):
    """Return how many descriptors of this process are of a file, whatever else it has open."""
    there, found = path.stat(), 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # Closed meanwhile by another thread.
            found += os.path.samestat(os.fstat(int(name)), there)
    return found


def test_a_reserve_holds_descriptors_releases_them_and_takes_them_back(tmp_path):
    path, aside = tmp_path / "device", tmp_path / "aside"
    path.touch()
    reserve = DescriptorReserve(3, path)
    assert opened(path) == 3
    with reserve.released():
        assert opened(path) == 0
        path.rename(aside)
        with reserve.released():
            pass
        assert opened(aside) == 0  # It is filled after the next release.
        aside.rename(path)
    assert opened(path) == 3
    reserve.close()
    assert opened(path) == 0
    reserve.close()


def test_an_abandoned_reserve_is_closed(tmp_path):
    path = tmp_path / "device"
    path.touch()
    DescriptorReserve(3, path)
    assert opened(path) == 0


def raised_from(error, cause):
    try:
        raise error from cause
    except type(error) as found:
        return found


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "x"), "Too many open files"),
        (raised_from(StorageFailed("x"), OSError(errno.ENFILE, "x")), "Too many open files"),
        (raised_from(KeyError(1), MemoryError()), "memory is short"),
        (RuntimeError("can't start new thread"), "no thread could be started"),
        (OSError(errno.EIO, "x"), None),
        (RuntimeError("x"), None),
        (StorageFailed("Too many open files"), None),
    ],
)
def test_a_shortage_is_found_in_what_came_of_it(error, said):
    found = shortage_in(error)
    assert (found is None) if said is None else (said in str(found))


def test_clients_of_any_version_get_a_shortage_as_one_that_passes():
    status = to_status(ResourcesShort("Too many open files"))
    assert code_of(ResourcesShort).name == "RESOURCE_EXHAUSTED"
    got = from_status(status)
    assert type(got) is Overloaded
    assert got.retry_after_ms == 1_000
