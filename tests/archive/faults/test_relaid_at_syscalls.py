"""Runs that are written anew in another layout survive any system call that fails or kills."""

import pytest

from tests.archive.children import relay
from tests.archive.syscalls import fail_each, needs_strace
from tests.scale import scaled


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("/pwritev.*", "error=ENOSPC", scaled(14, 7)),
        ("pwrite64", "error=ENOSPC", scaled(50, 25)),
        ("fdatasync", "error=EIO", scaled(18, 9)),
        ("/rename.*", "error=EIO", 2),
        ("/unlink.*", "error=EIO", 3),
        ("pwrite64", "signal=KILL", scaled(50, 25)),
        ("/rename.*", "signal=KILL", 2),
        ("/unlink.*", "signal=KILL", 3),
        ("fdatasync", "signal=KILL", scaled(18, 9)),
    ],
)
def test_runs_that_are_written_anew_survive_any_failing_call(tmp_path, call, error, step):
    assert fail_each(tmp_path, call, error, step, relay) >= 1
