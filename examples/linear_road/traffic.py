"""Traffic of Linear Road on one expressway: position reports, and requests of drivers.

Published (Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004; the figures
of one expressway as in Carafoli et al., "Streaming Tables", section VII): 100 segments of a mile in
two directions, a report of each car every 30 seconds, 1,118 reports in the first minute and 100,000
in the last of 180, over 12 million in all, 60,000 requests for a balance and 12,000 for
expenditures. Ours: the square root between the two rates, which gives that sum, and the movement of
cars, which slow down as their segment fills. The published generator is a traffic simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

START_US = 1_767_225_600_000_000  # 2026-01-01.
SECOND_US = 1_000_000
MINUTES = 180
PERIOD_S = 30  # Between two reports of a car.
SEGMENT_FEET = 5_280
FEET_PER_REPORT = 44  # Per mile an hour, in PERIOD_S.
ENTRANCE, EXIT = 0, 4  # Lanes; cars travel on lanes 1 to 3.
EXPENDITURE_SHARE = 0.001  # Reports that come with a request for an expenditure.
DAYS = 69  # Of the history of expenditures.
NUMBERS = 100_000_000  # Cars, and requests, of an expressway have numbers of their own.

Integers = NDArray[np.int64]
Columns = dict[str, Integers]


def published_rate(minute: int) -> float:
    """Return the reports of a minute, counted from 0."""
    return 1_118 + (100_000 - 1_118) * (minute / (MINUTES - 1)) ** 0.5


@dataclass(frozen=True, slots=True)
class Minute:
    """All that arrives in a minute, by stream, in the order of event time."""

    posreports: pa.Table
    balances: pa.Table
    expenditures: pa.Table


@dataclass(slots=True)
class Traffic:
    """Cars on an expressway. The same values give the same traffic.

    xway: number of the expressway.
    rate: reports of a minute, counted from 0.
    segments: length of the road in miles.
    incident_s: seconds between incidents: by turns a car that stops alone and two that collide.
    stop_s: the shortest and the longest stop; seconds.
    asking: share of the reports that come with a request for the car's balance.
    """

    seed: int = 1
    xway: int = 0
    rate: Callable[[int], float] = published_rate
    segments: int = 100
    incident_s: int = 600
    stop_s: tuple[int, int] = (600, 1_200)
    asking: float = 0.005
    _rng: np.random.Generator = field(init=False)
    _cohorts: list[Columns] = field(init=False)
    _density: Integers = field(init=False)
    _cars: int = field(init=False)
    _requests: int = field(init=False)
    _incidents: int = field(init=False, default=0)
    _wreck: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, self.xway] if self.xway else self.seed)
        self._cars = self._requests = self.xway * NUMBERS
        names = ("vid", "dir", "lane", "pos", "end", "until")
        self._cohorts = [{name: np.zeros(0, np.int64) for name in names} for _ in range(PERIOD_S)]
        self._density = np.zeros((2, self.segments), np.int64)

    def minutes(self, count: int) -> Iterator[Minute]:
        """Yield the first minutes of the traffic."""
        for minute in range(count):
            self._count_cars()
            seconds = [self._second(minute, second) for second in range(60)]
            yield self._minute(
                {name: np.concatenate([each[name] for each in seconds]) for name in seconds[0]}
            )

    def _count_cars(self) -> None:
        self._density[:] = 0
        for cars in self._cohorts:
            np.add.at(self._density, (cars["dir"], cars["pos"] // SEGMENT_FEET), 1)

    def _second(self, minute: int, second: int) -> Columns:
        """Move the cars that report in a second, and return their reports."""
        now = minute * 60 + second
        cars = self._cohorts[now % PERIOD_S]
        stays = cars["lane"] != EXIT
        cars = {name: column[stays] for name, column in cars.items()}
        speed = np.where(cars["until"] > now, 0, self._speeds(cars))
        self._move(cars, speed)
        missing = round(self.rate(minute) / 60) - len(speed)
        if missing > 0:
            fresh = self._entering(missing)
            speed = np.concatenate([speed, self._speeds(fresh)])
            cars = {name: np.concatenate([cars[name], fresh[name]]) for name in cars}
        self._have_incident(now, cars, speed)
        self._cohorts[now % PERIOD_S] = cars
        return {
            "second": np.full(len(speed), now),
            "spd": speed,
            **{name: cars[name].copy() for name in ("vid", "lane", "dir", "pos")},
        }

    def _speeds(self, cars: Columns) -> Integers:
        """Miles an hour: 70 on an empty segment, less than 40 from about 65 cars on."""
        near = self._density[cars["dir"], cars["pos"] // SEGMENT_FEET]
        speed = 15 + 55 * np.exp(-near / 80) + self._rng.normal(0, 4, len(near))
        return np.clip(np.rint(speed), 5, 100).astype(np.int64)

    def _move(self, cars: Columns, speed: Integers) -> None:
        """Drive for PERIOD_S; a car that reaches its end is on the exit ramp."""
        forward = 1 - 2 * cars["dir"]
        cars["pos"] += forward * speed * FEET_PER_REPORT
        past = (cars["pos"] - cars["end"]) * forward >= 0
        cars["pos"] = np.where(past, cars["end"], cars["pos"])
        moved = self._rng.integers(1, 4, len(speed))
        keeps = (cars["lane"] != ENTRANCE) & ((speed == 0) | (moved > 1))
        cars["lane"] = np.where(past, EXIT, np.where(keeps, cars["lane"], moved))

    def _entering(self, count: int) -> Columns:
        """Return new cars, each with an entrance, a direction and an exit."""
        vid = np.arange(self._cars, self._cars + count)
        self._cars += count
        direction = self._rng.integers(0, 2, count)
        forward = 1 - 2 * direction
        feet = self.segments * SEGMENT_FEET
        pos = self._rng.integers(0, feet, count)
        trip = self._rng.integers(2 * SEGMENT_FEET, 30 * SEGMENT_FEET, count)
        return {
            "vid": vid,
            "dir": direction,
            "lane": np.full(count, ENTRANCE),
            "pos": pos,
            "end": np.clip(pos + forward * trip, 0, feet - 1),
            "until": np.zeros(count, np.int64),
        }

    def _have_incident(self, now: int, cars: Columns, speed: Integers) -> None:
        """Stop a car of this second, if an incident is due or lacks its second car."""
        travels = (cars["lane"] != ENTRANCE) & (cars["lane"] != EXIT) & (cars["until"] <= now)
        if self._wreck:
            near = cars["pos"] // SEGMENT_FEET == self._wreck["pos"] // SEGMENT_FEET
            (found,) = np.nonzero(travels & near & (cars["dir"] == self._wreck["dir"]))
        elif now >= (self._incidents + 1) * self.incident_s:
            (found,) = np.nonzero(travels)
        else:
            return
        if not len(found):
            return
        car = int(self._rng.choice(found))
        speed[car] = 0
        cars["until"][car] = now + int(self._rng.integers(*self.stop_s, endpoint=True))
        for name, value in self._wreck.items():
            cars[name][car] = value
        if self._wreck or self._incidents % 2:
            self._incidents += 1
            self._wreck = {}
        else:
            self._wreck = {name: int(cars[name][car]) for name in ("dir", "lane", "pos")}

    def _minute(self, reports: Columns) -> Minute:
        times = START_US + reports["second"] * SECOND_US
        ts, vid = pa.array(times).cast(pa.timestamp("us")), pa.array(reports["vid"])
        table = pa.table(
            {
                "ts": ts,
                "vid": vid,
                "spd": reports["spd"],
                "xway": np.full(len(times), self.xway),
                "lane": reports["lane"],
                "dir": reports["dir"],
                "seg": reports["pos"] // SEGMENT_FEET,
                "pos": reports["pos"],
            }
        )
        return Minute(
            table,
            self._asked(ts, vid, self.asking),
            self._asked(ts, vid, EXPENDITURE_SHARE),
        )

    def _asked(self, ts: pa.Array, vid: pa.Array, share: float) -> pa.Table:
        """Return requests of a share of the cars that report."""
        (chosen,) = np.nonzero(self._rng.random(len(ts)) < share)
        ids = np.arange(self._requests, self._requests + len(chosen))
        self._requests += len(chosen)
        rows = pa.array(chosen)
        day = self._rng.integers(1, DAYS + 1, len(chosen))
        return pa.table({"ts": ts.take(rows), "vid": vid.take(rows), "qid": ids, "day": day})


def expressways(roads: Sequence[Traffic], count: int) -> Iterator[Minute]:
    """Yield the first minutes of several expressways together."""
    for minutes in zip(*(road.minutes(count) for road in roads), strict=True):
        yield Minute(
            _merged([each.posreports for each in minutes]),
            _merged([each.balances for each in minutes]),
            _merged([each.expenditures for each in minutes]),
        )


def _merged(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows in the order of event time."""
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables)
    times = whole["ts"].cast(pa.int64()).to_numpy()
    return whole.take(pa.array(times.argsort(kind="stable")))
