"""A store at work in a process of its own, one of whose system calls fails or kills it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shedder.archive.operations.verify import check
from tests.archive.children import write
from tests.archive.power import moments
from tests.archive.worlds import positions, recover
from tests.warm_process import Traced, WarmProcess

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


def all_of(output: list[str], end: int) -> list[list[int]]:
    """The positions that there may be: every one."""
    return [list(range(end))]


def some_of(output: list[str], end: int) -> list[list[int]]:
    """The positions that delete_and_purge may leave."""
    purged = list(range(1, 20, 2))
    return [purged] if "deleted" in output else [list(range(end)), purged]


def run(
    directory: Path,
    call: str,
    error: str,
    index: int,
    work: Callable[[Path], None],
    failing: int = 1,
    path: Path | None = None,
) -> tuple[list[str], bool]:
    """What the work printed whose index-th call fails or kills, and whether that call came.

    failing: so many calls in a row fail. path: calls with this file alone count; None: all do.
    """
    said, trace = directory.with_suffix(".said"), directory.with_suffix(".trace")
    with WarmProcess(work, directory, errors=said, waits=True) as process:
        inject = f"{error}:when={index}..{index + failing - 1}"
        traced = Traced(process, trace, call=call, inject=inject, path=path)
        output = process.output.read().split()
        status = process.wait()
    killed = -9 if error == "signal=KILL" else 0
    assert status in (0, 3, killed), said.read_text()
    return output, traced.injected(status)


def fail_each(
    tmp_path: Path,
    call: str,
    error: str,
    step: int,
    work: Callable[[Path], None] = write,
    allowed: Callable[[list[str], int], list[list[int]]] = all_of,
    failing: int = 1,
) -> int:
    """Let one call in `step` fail, each in a run of its own; the seed of the run decides the first.

    Returns:
      the number of calls that failed.
    """
    name = f"{work.__name__} {call} {error} {failing}"
    for failures, index in enumerate(moments(step, name, first=1)):
        directory = tmp_path / f"{index}"
        directory.mkdir()
        output, injected = run(directory, call, error, index, work, failing)
        acknowledged = max((int(word) for word in output if word.isdigit()), default=0)
        store = recover(directory)
        assert store.recovery.log.damages == ()
        if store.streams():
            end = store.end_position(1)
            assert acknowledged <= end <= acknowledged + 20
            assert positions(store) in allowed(output, end)
        else:
            assert not output
        store.close()
        report = check(directory)
        assert (report.damages, report.notes) == ([], [])
        if not injected:
            return failures
    raise AssertionError("unreachable: moments do not end")
