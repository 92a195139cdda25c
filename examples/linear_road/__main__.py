"""Linear Road: every answer is checked, and the slowest is reported.

python -m examples.linear_road            three hours at full speed, then ten minutes in real time
python -m examples.linear_road 20 1       20 minutes at full speed, then one in real time
python -m examples.linear_road 20 1 2     the same with two expressways
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import shedder
from examples.linear_road.check import wrong
from examples.linear_road.expenditures import answer_expenditures, history
from examples.linear_road.replay import Replay, RoadAnswers
from examples.linear_road.rules import Expected, Rules
from examples.linear_road.traffic import (
    MINUTES,
    SECOND_US,
    START_US,
    Minute,
    Traffic,
    expressways,
    published_rate,
)
from shedder.engine.engine import Engine

ROADS_MAX = 64
WARM_UP = 6  # Minutes before the real time begins, so that all windows are full.
DEADLINE_S = 5.0  # Of every answer.
MEMORY_BYTES = 16 << 30  # A limit; all row queries may hold an eighth of it.
QUERY_BYTES = 1 << 30  # Five minutes of reports, or a day of tolls.
PROGRESS_MINUTES = 30  # Of the replay, between two lines that say how far it is.
OUTPUT_BYTES = 64 << 20  # The notices of a minute.


@dataclass(slots=True)
class RoadTally:
    """RoadAnswers so far. latency_s: of each step."""

    tolls: int = 0
    charged: int = 0
    accidents: int = 0
    balances: int = 0
    wrong: int = 0
    latency_s: list[float] = field(default_factory=list)

    def add(self, answers: list[RoadAnswers], expected: Expected) -> None:
        """Count and check the answers of a minute."""
        self.wrong += wrong(answers, expected)
        for each in answers:
            self.tolls += each.tolls.num_rows
            self.charged += pc.sum(pc.greater(each.tolls["toll"], 0)).as_py() or 0
            self.accidents += each.accidents.num_rows
            self.balances += each.balances.num_rows

    def show(self) -> None:
        """Print everything."""
        latency = np.array(self.latency_s)
        late = int((latency > DEADLINE_S).sum())
        print(f"  {self.tolls:,} toll notices, {self.charged:,} with a toll")
        print(f"  {self.accidents:,} accident notices and {self.balances:,} balances")
        print(f"  {self.wrong:,} wrong answers")
        print(
            f"  latency: mean {latency.mean():.2f} s, largest {latency.max():.2f} s; "
            f"{late} of {len(latency)} steps above {DEADLINE_S:.0f} s"
        )


def full_speed(directory: Path, minutes: int, roads: int) -> bool:
    """Replay the first minutes, a minute at a time; return whether all is right."""
    traffic = expressways([Traffic(xway=xway) for xway in range(roads)], minutes)
    rules, tally, reports, expenditures = Rules(), RoadTally(), 0, 0
    with _open(directory, roads) as db:
        replay, spent = Replay(db), history(db)
        for at, minute in enumerate(traffic):
            began = time.perf_counter()
            answers = replay.step(minute.posreports, minute.balances, _instant(60 * (at + 1)))
            expenditures += answer_expenditures(db, minute.expenditures, spent)
            tally.latency_s.append(time.perf_counter() - began)
            tally.add([answers], rules.minute(minute.posreports, minute.balances))
            reports += minute.posreports.num_rows
            if at + 1 < minutes and (at + 1) % PROGRESS_MINUTES == 0:
                done = f"{at + 1} of {minutes} minutes: {reports:,} reports"
                print(f"{done}, {tally.wrong:,} wrong answers", flush=True)
    times = 60 * minutes / sum(tally.latency_s)
    print(
        f"{minutes} minutes of {_of(roads)} at full speed: {reports:,} reports, "
        f"{times:.1f} times real time"
    )
    tally.show()
    print(f"  {expenditures:,} expenditures, all right")
    print(
        f"  at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB resident"
    )
    return tally.wrong == 0


def real_time(directory: Path, minutes: int, roads: int) -> bool:
    """Push each second of the last minute's rate when it is over; return whether all is right.

    The latency of a second is that of its first report.
    """
    rules, tally = Rules(), RoadTally()
    made = list(
        expressways(
            [
                Traffic(seed=2, xway=xway, rate=lambda _: published_rate(MINUTES - 1))
                for xway in range(roads)
            ],
            WARM_UP + minutes,
        )
    )
    expected = [rules.minute(minute.posreports, minute.balances) for minute in made]
    with _open(directory, roads) as db:
        replay = Replay(db)
        for at, minute in enumerate(made[:WARM_UP]):
            answers = replay.step(minute.posreports, minute.balances, _instant(60 * (at + 1)))
            tally.wrong += wrong([answers], expected[at])
        began = time.perf_counter() - 60 * WARM_UP
        answered: list[list[RoadAnswers]] = [[] for _ in made]
        for second in range(60 * WARM_UP, 60 * len(made)):
            time.sleep(max(0.0, began + second + 1 - time.perf_counter()))
            part = _second(made[second // 60], second)
            answered[second // 60].append(
                replay.step(part.posreports, part.balances, _instant(second + 1))
            )
            tally.latency_s.append(time.perf_counter() - began - second)
    for parts, truth in zip(answered[WARM_UP:], expected[WARM_UP:], strict=True):
        tally.add(parts, truth)
    rate = roads * published_rate(MINUTES - 1)
    print(f"{minutes} minutes of {_of(roads)} in real time at {rate:,.0f} reports a minute")
    tally.show()
    return tally.wrong == 0 and max(tally.latency_s) <= DEADLINE_S


def _of(roads: int) -> str:
    return "1 expressway" if roads == 1 else f"{roads} expressways"


def _open(directory: Path, roads: int) -> Engine:
    return shedder.open(
        directory,
        memory_bytes=roads * MEMORY_BYTES,
        row_query_bytes_max=roads * QUERY_BYTES,
        row_output_bytes_max=roads * OUTPUT_BYTES,
    )


def _instant(second: int) -> int:
    return START_US + second * SECOND_US


def _second(minute: Minute, second: int) -> Minute:
    """Return the part of a minute that is in a second."""

    def part(table: pa.Table) -> pa.Table:
        times = table["ts"].cast(pa.int64()).to_numpy()
        first, end = np.searchsorted(times, [_instant(second), _instant(second + 1)])
        return table.slice(int(first), int(end - first))

    return Minute(part(minute.posreports), part(minute.balances), part(minute.expenditures))


def arguments_of(words: Sequence[str]) -> tuple[int, int, int]:
    """Read minutes at full speed and in real time, and expressways; bad ones end the program."""
    parser = argparse.ArgumentParser(prog="python -m examples.linear_road")
    parser.add_argument("minutes", nargs="?", type=int, default=MINUTES, help="at full speed")
    parser.add_argument("live", nargs="?", type=int, default=10, help="in real time; 0: none")
    parser.add_argument("roads", nargs="?", type=int, default=1, help="number of expressways")
    found = parser.parse_args(words)
    if not 1 <= found.minutes <= MINUTES:
        parser.error(f"minutes is {found.minutes}; it is from 1 to {MINUTES}")
    if found.live < 0:
        parser.error(f"live is {found.live}; it is 0 or more")
    if not 1 <= found.roads <= ROADS_MAX:
        parser.error(f"roads is {found.roads}; it is from 1 to {ROADS_MAX}")
    return found.minutes, found.live, found.roads


def main() -> None:
    """Run both parts; the exit status is 1 if an answer was wrong, or late in real time."""
    minutes, live, roads = arguments_of(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        right = full_speed(Path(folder) / "replay", minutes, roads)
        right &= live == 0 or real_time(Path(folder) / "live", live, roads)
    sys.exit(not right)


if __name__ == "__main__":
    main()
