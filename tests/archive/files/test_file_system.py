"""The exception for a failed write names what is short: space, descriptors, memory or the disk."""

import errno
import os

import pytest

from shedder.archive.archive_store import Store
from shedder.archive.files.file_system import OsFiles, failure
from shedder.errors import DiskFull, ResourcesShort, StorageFailed
from tests.archive.schemas import SCHEMA
from tests.archive.worlds import ingest, names, positions


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, DiskFull, "no space for run 7"),
        (errno.EDQUOT, DiskFull, "no space for run 7"),
        (errno.EFBIG, DiskFull, "no space for run 7"),
        (errno.EMFILE, ResourcesShort, "cannot make run 7 now"),
        (errno.ENFILE, ResourcesShort, "cannot make run 7 now"),
        (errno.ENOMEM, ResourcesShort, "cannot make run 7 now"),
        (errno.EIO, StorageFailed, "cannot make run 7"),
        (errno.EACCES, StorageFailed, "cannot make run 7"),
    ],
)
def test_a_failed_write_says_what_is_short(number, kind, said):
    error = OSError(number, os.strerror(number))
    found = failure(error, "run 7", "make")
    assert (type(found), str(found)) == (kind, f"{said}: {error}")


class NoRuns(OsFiles):
    """The real file system, on which no Parquet file can be created while `errno` is set."""

    errno: int | None = None

    def create(self, path):
        if self.errno is not None and path.suffix == ".parquet":
            raise OSError(self.errno, os.strerror(self.errno))
        return super().create(path)


def test_a_run_without_a_descriptor_is_not_said_to_lack_space(tmp_path):
    files = NoRuns()
    store = Store.open(tmp_path, files=files)
    store.create_stream(SCHEMA)
    ingest(store, 0, 20)
    for number, said in [
        (errno.EMFILE, "cannot write run .* now: .*Too many open files"),
        (errno.ENOSPC, "no space for run .*: .*No space left"),
    ]:
        files.errno = number
        with pytest.raises(DiskFull, match=said):
            store.cut(1)
        assert names(tmp_path) == set()
    files.errno = None
    store.cut(1)
    assert positions(store) == list(range(20))
    store.close()
