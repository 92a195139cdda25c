"""The answers that the rules of Linear Road ask for, by brute force over reports.

`queries.py` has the rules in words. This module shares no code with the queries: it follows each
car from report to report.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MINUTE_US = 60_000_000
PERIOD_US = 30_000_000
EXIT = 4

Integers = NDArray[np.int64]
Segment = tuple[int, int, int]  # Expressway, direction, number.


@dataclass(frozen=True, slots=True)
class TollNotice:
    """The toll of a segment for a car that enters it; lav: None before the first full minute."""

    ts_us: int
    vid: int
    seg: int
    lav: float | None
    toll: int


@dataclass(frozen=True, slots=True)
class AccidentNotice:
    """The nearest accident ahead of a car that enters a segment."""

    ts_us: int
    vid: int
    seg: int
    accident: int


@dataclass(slots=True)
class Expected:
    """What must follow from a minute of reports; balances: by request."""

    tolls: list[TollNotice] = field(default_factory=list)
    accidents: list[AccidentNotice] = field(default_factory=list)
    balances: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Car:
    """place: of the newest report. seen_us: its time. in_a_row: reports from that place."""

    segment: Segment
    place: tuple[int, ...]
    seen_us: int
    in_a_row: int = 1


@dataclass(slots=True)
class Rules:
    """Reads minute after minute of reports.

    _paid: by car. _due: the toll of the segment where a car is.
    """

    _expected: Expected = field(default_factory=Expected)
    _paid: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _due: dict[int, int] = field(default_factory=dict)
    _cars: dict[int, _Car] = field(default_factory=dict)
    _cars_before: dict[Segment, int] = field(default_factory=dict)
    _averages: deque[dict[Segment, float]] = field(default_factory=lambda: deque(maxlen=5))

    def minute(self, reports: pa.Table, requests: pa.Table) -> Expected:
        """Return what follows from the reports and the requests for balances of one minute."""
        self._expected = Expected()
        names = ("vid", "spd", "xway", "lane", "dir", "seg", "pos")
        columns = [reports.column(name).to_numpy().tolist() for name in names]
        times = reports.column("ts").cast(pa.int64()).to_numpy().tolist()
        begin_us = times[0] // MINUTE_US * MINUTE_US if times else 0
        wrecks = self._wrecks(begin_us)
        lav = self._velocities()
        asked = _by_time(requests)
        speeds: dict[Segment, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, ts_us in enumerate(times):
            vid, spd, xway, lane, direction, seg, pos = (column[at] for column in columns)
            segment = (xway, direction, seg)
            speeds[segment][vid].append(spd)
            if self._enters(vid, segment, (*segment, lane, pos), ts_us) and lane != EXIT:
                self._notify(ts_us, vid, segment, lav.get(segment), wrecks)
            if at + 1 == len(times) or times[at + 1] != ts_us:  # The second is over.
                for car, qid in asked.pop(ts_us, ()):
                    self._expected.balances[qid] = self._paid[car]
        self._cars_before = {segment: len(cars) for segment, cars in speeds.items()}
        self._averages.append(
            {
                segment: math.fsum(sum(each) / len(each) for each in cars.values()) / len(cars)
                for segment, cars in speeds.items()
            }
        )
        return self._expected

    def _enters(self, vid: int, segment: Segment, place: tuple[int, ...], ts_us: int) -> bool:
        """Follow a car; return whether this is its first report of the segment."""
        before = self._cars.get(vid)
        if before is None:
            self._cars[vid] = _Car(segment, place, ts_us)
            return True
        entered = before.segment != segment
        before.in_a_row = before.in_a_row + 1 if before.place == place else 1
        before.segment, before.place, before.seen_us = segment, place, ts_us
        return entered

    def _notify(
        self,
        ts_us: int,
        vid: int,
        segment: Segment,
        lav: float | None,
        wrecks: set[Segment],
    ) -> None:
        xway, direction, seg = segment
        ahead = range(seg, seg + 5) if direction == 0 else range(seg, seg - 5, -1)
        met = [each for each in ahead if (xway, direction, each) in wrecks]
        self._expected.accidents += [AccidentNotice(ts_us, vid, seg, each) for each in met[:1]]
        cars = self._cars_before.get(segment, 0)
        congested = cars > 50 and lav is not None and lav < 40 and not met
        toll = 2 * (cars - 50) ** 2 if congested else 0
        self._expected.tolls.append(TollNotice(ts_us, vid, seg, lav, toll))
        self._paid[vid] += self._due.get(vid, 0)
        self._due[vid] = toll

    def _wrecks(self, begin_us: int) -> set[Segment]:
        """Return the segments with two cars that stand at one place when a minute begins."""
        standing: dict[tuple[int, ...], int] = defaultdict(int)
        for vid in [vid for vid, car in self._cars.items() if car.seen_us < begin_us - PERIOD_US]:
            del self._cars[vid]  # It has left the road.
        for car in self._cars.values():
            if car.in_a_row >= 4:
                standing[car.place] += 1
        return {(place[0], place[1], place[2]) for place, cars in standing.items() if cars >= 2}

    def _velocities(self) -> dict[Segment, float]:
        """Return the latest average velocity of each segment."""
        found: dict[Segment, list[float]] = defaultdict(list)
        for averages in self._averages:
            for segment, speed in averages.items():
                found[segment].append(speed)
        return {segment: math.fsum(each) / len(each) for segment, each in found.items()}


def _by_time(requests: pa.Table) -> dict[int, list[tuple[int, int]]]:
    """Return car and id of the requests by their time."""
    asked: dict[int, list[tuple[int, int]]] = defaultdict(list)
    times = requests.column("ts").cast(pa.int64()).to_pylist()
    cars, ids = (requests.column(name).to_pylist() for name in ("vid", "qid"))
    for ts_us, vid, qid in zip(times, cars, ids, strict=True):
        asked[ts_us].append((vid, qid))
    return asked
