"""Capacity: the largest number of expressways of which no answer is late."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from examples.linear_road.real_time import Lived, LiveRun, lived
from examples.linear_road.road_database import expressways_text, opened
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
        run = LiveRun(minutes, roads, stops_late=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as processes:  # With memory of its own.
            found = processes.submit(_trial, directory / str(roads), run).result()
        runs.append((roads, found))
        result = f"{found.tally.late} late, {found.wrong} wrong answers"
        print(f"{expressways_text(roads)}: {result}", flush=True)
        return found.is_right

    held = largest(holds, most)
    runs.sort(key=lambda run: run[0])
    print(f"\nExpressways in real time, {minutes} minutes each; an answer is late after 5 s\n")
    print(table_text(HEAD, [_row(roads, found) for roads, found in runs]))
    bound = " (no larger number was tried)" if held == most else ""
    print(f"\n  largest number without a late or wrong answer: {held}{bound}")
    return held


def _trial(directory: Path, run: LiveRun) -> Lived:
    with opened(directory, run.roads) as db:
        return lived(db, run)


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
