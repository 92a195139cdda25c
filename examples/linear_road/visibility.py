"""Visibility of reports: a one-time question sees a report once its push has returned."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from examples.linear_road.replay import Replay
from examples.linear_road.road_database import instant, opened, second_of
from examples.linear_road.screen import RunBar, table_text
from examples.linear_road.traffic import Traffic, published_rate

RATES = (60, 90, 120)  # Minutes of the published traffic whose rates are measured.
NEWEST = "SELECT vid, pos FROM posreports WHERE ts >= ?"


@dataclass(frozen=True, slots=True)
class Visibility:
    """Some traffic: each second is pushed, and then a question is asked.

    unseen: reports that the first question after their push lacked.
    """

    reports: int
    unseen: int
    answer_s: tuple[float, ...]


def visibilities(directory: Path) -> dict[int, Visibility]:
    """Measure each rate of RATES in a database of its own."""
    found = {}
    with RunBar("visibility", len(RATES), "rates", len(RATES)) as bar:
        for minute in RATES:
            rate = published_rate(minute)
            found[minute] = visibility(directory / str(minute), rate)
            bar.show(len(found), f"{rate:,.0f} reports a minute")
    return found


def visibility(directory: Path, rate: float, seconds: int = 60) -> Visibility:
    """Measure a rate, in reports a minute, beside all standing queries; at most a minute of it."""
    (minute,) = Traffic(rate=lambda _: rate).minutes(1)
    reports = 0
    unseen, answer_s = 0, []
    with opened(directory, 1) as db:
        replay = Replay(db)
        for second in range(seconds):
            part = second_of(minute, second)
            replay.report(part.posreports)
            began = time.perf_counter()
            seen = db.execute(NEWEST, [part.posreports["ts"][0].as_py()]).table
            answer_s.append(time.perf_counter() - began)
            reports += part.posreports.num_rows
            unseen += (_bag(part.posreports) - _bag(seen)).total()
            replay.answer(part.balances, instant(second + 1))
    return Visibility(reports, unseen, tuple(answer_s))


def _bag(reports: pa.Table) -> Counter[tuple[int, int]]:
    columns = (reports[name].to_pylist() for name in ("vid", "pos"))
    return Counter(zip(*columns, strict=True))


def visibility_text(found: Mapping[int, Visibility]) -> str:
    """Return a table of rates."""
    rows = [
        (
            f"{published_rate(minute):,.0f}",
            f"{each.reports:,}",
            f"{each.unseen:,}",
            f"{1e3 * np.mean(each.answer_s):,.0f} ms",
            f"{1e3 * max(each.answer_s):,.0f} ms",
        )
        for minute, each in found.items()
    ]
    return table_text(("reports a minute", "pushed", "not seen at once", "answer", "largest"), rows)
