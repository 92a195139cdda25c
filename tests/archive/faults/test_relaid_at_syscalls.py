"""Runs that are written anew in another layout survive any system call that fails or kills."""

import pytest

from tests.archive.children import relay
from tests.archive.syscalls import fail_each, needs_strace


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("/pwritev.*", "error=ENOSPC", 32),
        ("pwrite64", "error=ENOSPC", 190),
        ("fdatasync", "error=EIO", 29),
        ("/rename.*", "error=EIO", 6),
        ("/unlink.*", "error=EIO", 9),
        ("pwrite64", "signal=KILL", 190),
        ("/rename.*", "signal=KILL", 6),
        ("/unlink.*", "signal=KILL", 9),
        ("fdatasync", "signal=KILL", 29),
    ],
)
def test_runs_that_are_written_anew_survive_any_failing_call(tmp_path, call, error, step):
    assert fail_each(tmp_path, call, error, step, relay) >= 1
