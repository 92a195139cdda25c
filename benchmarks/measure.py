"""What a benchmark is: a claim, a table of measurements made in one run, and the machine."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one benchmark: a row per contender, measured in one run.

    notes: what a reader must know to judge the figures (data, settings, what is not equal).
    picture: file below docs/ that shows the same, with a description for readers without images.
    more: further tables of the same run.
    """

    claim: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)
    picture: tuple[str, str] | None = None
    more: Sequence[Report] = field(default_factory=tuple)

    def markdown(self) -> str:
        """The report as a section's body."""
        head = "| " + " | ".join(self.columns) + " |"
        rule = "|" + "---|" * len(self.columns)
        body = ["| " + " | ".join(row) + " |" for row in self.rows]
        notes = [f"- {note}" for note in self.notes]
        shown = [] if self.picture is None else [f"![{self.picture[1]}]({self.picture[0]})", ""]
        lines = [self.claim, "", *shown, head, rule, *body, "", *notes]
        whole = "\n".join(lines).rstrip() + "\n"
        return "\n".join([whole, *(report.markdown() for report in self.more)])


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median wall time of some work, after one run to warm up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def cpu_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU time of some work, after one run to warm up: what others do hardly shows."""
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def machine() -> str:
    """One line on the machine and the versions that matter."""
    memory = psutil.virtual_memory().total >> 30
    return (
        f"{psutil.cpu_count()} cores ({_processor()}), {memory} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}"
    )


def commit() -> str:
    """The commit that was measured, with a mark when the code differs from it."""
    root = Path(__file__).parent.parent
    name = _git(root, "rev-parse", "--short", "HEAD")
    dirty = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return f"{name}{' and uncommitted changes' if dirty else ''}"


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
    return lines[0].split(":", 1)[1].strip() if lines else platform.machine()
