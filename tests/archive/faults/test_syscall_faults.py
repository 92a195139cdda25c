"""Every kind of system call fails once: SQLite's and Arrow's too, which no seam of ours sees.

Like pebble and SQLite in their own tests: raise the index of the failing call until no call
fails. The result is success or a clean error; what was acknowledged is there afterwards.
"""

import pytest

from tests.archive.syscalls import fail_each, needs_strace


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("/pwritev.*", "error=ENOSPC", 21),
        ("pwrite64", "error=EIO", 53),
        ("fdatasync", "error=EIO", 9),
        ("fsync", "error=EIO", 3),
        ("/rename.*", "error=EIO", 2),
        ("/unlink.*", "error=EIO", 2),
        ("ftruncate", "error=EIO", 2),
        ("/mkdir.*", "error=ENOSPC", 2),
    ],
)
def test_a_failing_system_call_is_a_clean_error_and_loses_nothing(tmp_path, call, error, step):
    assert fail_each(tmp_path, call, error, step) >= 1
