"""Every system call may fail: a run then ends in success, a clean error or a clean halt.

strace makes the n-th call of a kind fail, or kills the process there. A per-change run draws a
sample of the cases by its seed; a nightly run has all cases. The test then opens the directory
again without faults. The directory must hold every acknowledged tuple once, and panes and archive
must agree. A run that ends before its n-th call counts as skipped.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import shedder
from tests.engine.scripted import BATCHES, QUERY, ROWS, SETTINGS, run_script
from tests.scale import scaled
from tests.seeds import seed
from tests.warm_process import Traced, WarmProcess

SAMPLES = scaled(24, 1_000)
# How often the busiest thread of a run makes a call (strace counts for each thread alone).
CALLS = {"openat": 24, "pwritev2": 16, "pwrite64": 60, "fsync": 7, "fdatasync": 14,
         "rename": 2, "unlink": 4, "ftruncate": 3, "mkdir": 5}  # fmt: skip
FAULTS = ("error=EIO", "error=ENOSPC", "signal=KILL")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. code: negative for a signal. injected: whether the fault came about."""

    code: int
    lines: list[str]
    errors: str
    injected: bool

    @property
    def acknowledged(self) -> int:
        return sum(line.startswith("acknowledged") for line in self.lines)


def run(directory: Path, call: str, fault: str, number: int) -> Outcome:
    said, trace = directory.with_suffix(".said"), directory.with_suffix(".strace")
    with WarmProcess(run_script, directory, errors=said, waits=True) as process:
        traced = Traced(process, trace, call=call, inject=f"{fault}:when={number}")
        lines = process.output.read().splitlines()
        code = process.wait()
    return Outcome(code, lines, said.read_text(), traced.injected(code))


def verify(directory: Path, outcome: Outcome) -> None:
    """acknowledged ⊆ recovered ⊆ sent, no holes, nothing twice; panes and archive agree."""
    with shedder.open(directory, **SETTINGS) as db:
        streams = db.execute("SHOW STREAMS").table["stream"].to_pylist()
        if "ready" not in outcome.lines:
            assert streams in ([], ["events"])
            return
        assert streams == ["events"]
        exact = db.execute(QUERY.replace("COUNT(*) AS n", "COUNT(*) AS n, COUNT(DISTINCT id) AS d"))
        row = exact.rows()[0]
        assert row["n"] % ROWS == 0
        assert outcome.acknowledged * ROWS <= row["n"] <= BATCHES * ROWS
        assert row["d"] == row["n"]
        assert (row["s"] or 0) == row["n"] * (row["n"] - 1) // 2
        standing = db.query("whole").answer().rows()[0]
        assert (standing["n"], standing["s"] or 0) == (row["n"], row["s"] or 0)


def cases() -> list[tuple[str, str, int]]:
    """Return this run's sample of all (call, fault, n)."""
    every = [
        (call, fault, number)
        for call, most in CALLS.items()
        for fault in FAULTS
        for number in range(1, most + 1)
    ]
    random.Random(seed("faults")).shuffle(every)
    return every[:SAMPLES]


@pytest.mark.parametrize(("call", "fault", "number"), cases())
def test_a_failing_call_ends_in_success_a_clean_error_or_a_clean_halt(
    tmp_path: Path, call: str, fault: str, number: int
) -> None:
    outcome = run(tmp_path / "data", call, fault, number)
    expected = (0, 3, -9) if fault == "signal=KILL" else (0, 3)
    assert outcome.code in expected, outcome
    verify(tmp_path / "data", outcome)
    if not outcome.injected:
        assert outcome.code == 0, outcome
        pytest.skip(f"the run makes fewer than {number} calls of {call}")
