"""Seconds that tests take: recorded durations of files, budgets of directories, and tables of both.

`tests/budget.toml` holds a budget of CPU seconds for each directory. `tests/durations.json` holds
the recorded seconds of each file that takes a second or more; `make durations` writes it. Tables
inform: a run over its budget does not fail, because machines differ.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import psutil

TESTS = Path(__file__).parent
BUDGET, DURATIONS = TESTS / "budget.toml", TESTS / "durations.json"
TESTS_MIN = 1_000  # A run of fewer tests prints no table of budgets.
SLOWEST = 10  # Files in the second table.
RECORDED_S_MIN = 1.0  # Files below this are not recorded: their order does not matter.

# Files that use the Java runtime. They run in one worker process, which starts it once.
JVM = ("tests/spark_ingest/", "tests/cql/test_spark_agrees.py", "tests/cql/test_spark_rows.py")


@dataclass(slots=True)
class Spent:
    """Seconds of tests.

    cpu_s: CPU time of the test process and of child processes that have ended.
    wall_s: time between the start and the end of each phase of a test.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0

    def add(self, cpu_s: float, wall_s: float) -> None:
        """Add the seconds of one phase of one test."""
        self.cpu_s += cpu_s
        self.wall_s += wall_s


@dataclass(slots=True)
class Ledger:
    """Seconds of each file in a run; files are named as in node ids, from the root."""

    files: dict[str, Spent] = field(default_factory=dict)

    def add(self, nodeid: str, cpu_s: float, wall_s: float) -> None:
        """Add the seconds of one phase of the test with this node id."""
        self.files.setdefault(file_of(nodeid), Spent()).add(cpu_s, wall_s)

    def by_directory(self) -> dict[str, Spent]:
        """Return the sums of directories below tests/; files directly in tests/ belong to `.`."""
        sums: dict[str, Spent] = {}
        for name, spent in self.files.items():
            parts = PurePosixPath(name).parts[1:]
            directory = parts[0] if len(parts) > 1 else "."
            sums.setdefault(directory, Spent()).add(spent.cpu_s, spent.wall_s)
        return sums


def file_of(nodeid: str) -> str:
    """Return the file of a node id."""
    return nodeid.partition("::")[0]


def group_of(nodeid: str) -> str:
    """Return the group that must run in one process: the node id's file, or all Java files."""
    return "jvm" if nodeid.startswith(JVM) else file_of(nodeid)


def longest_first(nodeids: Iterable[str], recorded_s: Mapping[str, float]) -> list[int]:
    """Return positions of these node ids, groups that take longest first; ties keep their order.

    If a long group began late, the other workers would wait for that group at the end.
    """
    groups_s: dict[str, float] = {}
    for name, seconds in recorded_s.items():
        groups_s[group_of(name)] = groups_s.get(group_of(name), 0.0) + seconds
    turns = [-groups_s.get(group_of(nodeid), 0.0) for nodeid in nodeids]
    return sorted(range(len(turns)), key=turns.__getitem__)


def read_budget() -> dict[str, float]:
    """Return the budget of each directory in CPU seconds."""
    return {name: float(s) for name, s in tomllib.loads(BUDGET.read_text())["cpu_s"].items()}


def read_durations() -> dict[str, float]:
    """Return the recorded wall seconds of files that still exist."""
    found = json.loads(DURATIONS.read_text())
    return {name: float(s) for name, s in found.items() if (TESTS.parent / name).is_file()}


def recorded(ledger: Ledger, before: Mapping[str, float]) -> str:
    """Return the text of durations.json after a run; files that did not run keep their seconds."""
    seconds = {**before, **{name: spent.wall_s for name, spent in ledger.files.items()}}
    kept = {n: round(s) for n, s in seconds.items() if s >= RECORDED_S_MIN}
    return json.dumps(kept, indent=1, sort_keys=True) + "\n"


def directories(ledger: Ledger, budget_s: Mapping[str, float]) -> list[str]:
    """Return lines of a table: seconds of each directory beside its budget."""
    sums = ledger.by_directory()
    total = Spent()
    lines = [f"{'directory':<14}{'cpu s':>8}{'wall s':>8}{'budget':>8}{'share':>7}"]
    for name in sorted(sums, key=lambda name: -sums[name].cpu_s):
        total.add(sums[name].cpu_s, sums[name].wall_s)
        lines.append(_row(name, sums[name], budget_s.get(name)))
    lines.append(_row("all", total, sum(budget_s.values())))
    return lines


def _row(name: str, spent: Spent, budget_s: float | None) -> str:
    line = f"{name:<14}{spent.cpu_s:>8.0f}{spent.wall_s:>8.0f}"
    if budget_s is None:
        return line + f"{'none':>8}"
    share = spent.cpu_s / budget_s
    return line + f"{budget_s:>8.0f}{share:>7.0%}" + ("  over budget" if share > 1 else "")


def slowest(ledger: Ledger) -> list[str]:
    """Return lines of a table: the files that took longest."""
    names = sorted(ledger.files, key=lambda name: -ledger.files[name].cpu_s)[:SLOWEST]
    spent = [(name, ledger.files[name]) for name in names]
    return [f"{one.cpu_s:>8.0f}{one.wall_s:>8.0f}  {name}" for name, one in spent]


class CpuClock:
    """CPU seconds of this process, of its children that have ended, and of Java."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._java: list[psutil.Process] = []
        self._last_s = 0.0

    def since_last(self, *, look_for_java: bool) -> float:
        """Return the seconds since the last call.

        Java runs as long as its worker. When Java ends, its seconds count as those of an ended
        child. Searching the process table for Java takes milliseconds.
        """
        if look_for_java:
            self._java = self._process.children(recursive=True)
        now_s = sum(os.times()[:4]) + sum(map(_cpu_s, self._java))
        spent_s, self._last_s = max(0.0, now_s - self._last_s), now_s
        return spent_s


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process; 0 if it has ended, also if another thread has its number now."""
    with suppress(psutil.Error):
        if process.is_running():
            times = process.cpu_times()
            return float(times.user + times.system)
    return 0.0
