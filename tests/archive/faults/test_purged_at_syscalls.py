"""A purge survives any system call that fails or kills: each run is as it was, or purged."""

import pytest

from tests.archive.children import delete_and_purge
from tests.archive.syscalls import fail_each, needs_strace, some_of


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("pwrite64", "error=ENOSPC", 57),
        ("fdatasync", "error=EIO", 13),
        ("/rename.*", "error=EIO", 2),
        ("/unlink.*", "error=EIO", 5),
        ("/mkdir.*", "error=ENOSPC", 3),
        ("fsync", "signal=KILL", 3),
        ("pwrite64", "signal=KILL", 57),
        ("/rename.*", "signal=KILL", 2),
        ("/unlink.*", "signal=KILL", 4),
        ("fdatasync", "signal=KILL", 13),
    ],
)
def test_a_purge_survives_any_failing_call(tmp_path, call, error, step):
    assert fail_each(tmp_path, call, error, step, delete_and_purge, some_of) >= 1
