"""Capacity: the largest number of expressways of which no answer is late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from examples.linear_road.real_time import Lived, LiveRun, lived
from examples.linear_road.road_database import opened
from examples.linear_road.screen import table_text

HEAD = (
    "expressways",
    "reports/min",
    "mean",
    "largest",
    "late",
    "wrong",
    "processors",
    "memory",
)


def largest(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number that holds, by doubling and bisection; 0: none does.

    holds: is true up to some number, and false beyond. most: the largest number that is tried.
    """
    held, failed, tried = 0, most + 1, 1
    while held + 1 < failed:
        if holds(tried):
            held = tried
        else:
            failed = tried
        tried = min(2 * held, most) if failed > most else (held + failed) // 2
    return held


def capacity(directory: Path, minutes: int, most: int) -> int:
    """Print the runs that find the largest number of expressways, and return this number."""
    runs: list[tuple[int, Lived]] = []

    def holds(roads: int) -> bool:
        print(f"{roads}: {minutes} minutes in real time", flush=True)
        with opened(directory / str(roads), roads) as db:
            found = lived(db, LiveRun(minutes, roads, stops_late=True))
        runs.append((roads, found))
        return found.is_right

    held = largest(holds, most)
    runs.sort(key=lambda run: run[0])
    print(f"\nExpressways in real time, {minutes} minutes each; an answer is late after 5 s\n")
    print(table_text(HEAD, [_row(roads, found) for roads, found in runs]))
    bound = " (no larger number was tried)" if held == most else ""
    print(f"\n  largest number without a late or wrong answer: {held}{bound}")
    return held


def _row(roads: int, found: Lived) -> tuple[str, ...]:
    latency = found.tally.latency_s
    return (
        f"{roads}",
        f"{LiveRun(1, roads).reports_per_minute:,.0f}",
        f"{np.mean(latency):.2f} s",
        f"{max(latency):.2f} s",
        f"{found.tally.late} of {len(latency)}",
        f"{found.wrong}",
        f"{found.cores:.2f}",
        f"{found.resident_gib:.1f} GiB",
    )
