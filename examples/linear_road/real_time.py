"""Replay in real time: each second of the traffic is pushed when it is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import psutil

from examples.linear_road.past_questions import Past, PastAnswer, Questions, Schedule
from examples.linear_road.replay import Replay, RoadAnswers
from examples.linear_road.road_database import expressways_text, instant, opened, second_of
from examples.linear_road.rules import Rules
from examples.linear_road.screen import RunBar
from examples.linear_road.tally import RoadTally
from examples.linear_road.traffic import MINUTES, Minute, Traffic, expressways, published_rate
from shedder.engine.engine import Engine

WARM_UP = 6  # Minutes before the real time begins, so that all windows are full.
PROGRESS_MINUTES = 30  # As of the replay at full speed.


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run in real time. The traffic before it is replayed at full speed, and checked, too.

    minutes: in real time. history: minutes at the published rates before the warm-up.
    questions: one-time questions about the past in each second minute of real time.
    stops_late: the run ends with the first step after the deadline.
    """

    minutes: int
    roads: int = 1
    history: int = 0
    questions: int = 0
    stops_late: bool = False

    @property
    def before(self) -> int:
        """Minutes at full speed."""
        return self.history + WARM_UP

    @property
    def reports_per_minute(self) -> float:
        """In real time."""
        return self.roads * published_rate(MINUTES - 1)

    def traffic(self) -> list[Traffic]:
        """Return the traffic of each expressway."""

        def rate(minute: int) -> float:
            return published_rate(minute if minute < self.history else MINUTES - 1)

        return [Traffic(seed=2, xway=xway, rate=rate) for xway in range(self.roads)]

    def due_s(self, began: float) -> list[float]:
        """Instants of the questions; began: of the first second of the traffic."""
        gap = 60 / max(self.questions, 1)
        return [
            began + 60 * (self.before + minute) + gap * at
            for minute in range(1, self.minutes, 2)
            for at in range(self.questions)
        ]


@dataclass(slots=True)
class Lived:
    """The result of a run in real time.

    tally: of the real time. wrong: of all minutes. latency_s: of each second of real time.
    cores: that the process kept busy in real time. resident_gib: at the end.
    answers: to questions about the past. past: all reports, if there were questions.
    """

    tally: RoadTally = field(default_factory=RoadTally)
    wrong: int = 0
    cores: float = 0.0
    resident_gib: float = 0.0
    answers: list[PastAnswer] = field(default_factory=list)
    past: Past = field(default_factory=Past)

    @property
    def is_right(self) -> bool:
        """All answers are right, and none came after the deadline."""
        return self.wrong == 0 and self.tally.late == 0


def lived(db: Engine, run: LiveRun) -> Lived:
    """Run it."""
    traffic = iter(expressways(run.traffic(), run.before + run.minutes))
    rules, replay, found = Rules(), Replay(db), Lived()
    with RunBar("before", run.before, "minutes", PROGRESS_MINUTES) as bar:
        for at, minute in enumerate(islice(traffic, run.before)):
            answers = replay.step(minute.posreports, minute.balances, instant(60 * (at + 1)))
            check = RoadTally()
            check.add(0, [answers], rules.minute(minute.posreports, minute.balances))
            found.wrong += check.wrong
            if run.questions:
                found.past.add(minute.posreports)
            bar.show(at + 1, f"{found.wrong:,} wrong answers")
    made = list(traffic)
    expected = [rules.minute(minute.posreports, minute.balances) for minute in made]
    if run.questions:
        for minute in made:
            found.past.add(minute.posreports)
    answered = _in_real_time(db, replay, run, made, found)
    for minute, parts, truth in zip(made, answered, expected, strict=True):
        if len(parts) == 60:  # A run that stops early has not answered all of its last minute.
            found.tally.add(minute.posreports.num_rows, parts, truth)
    found.wrong += found.tally.wrong
    return found


def _in_real_time(
    db: Engine, replay: Replay, run: LiveRun, made: Sequence[Minute], found: Lived
) -> list[list[RoadAnswers]]:
    """Return the answers of each minute. The latency of a second is that of its first report."""
    tally, process, first = found.tally, psutil.Process(), 60 * run.before
    answered: list[list[RoadAnswers]] = [[] for _ in made]
    schedule = Schedule(db, Questions(run.roads), horizon_s=first)
    began = time.perf_counter() - first
    busy = process.cpu_times()
    with (
        ThreadPoolExecutor(1, "past-questions") as threads,
        RunBar("real time", 60 * run.minutes, "seconds", 60) as bar,
    ):
        asking = threads.submit(schedule.answers, run.due_s(began))
        for second in range(60 * run.minutes):
            now = first + second
            time.sleep(max(0.0, began + now + 1 - time.perf_counter()))
            part = second_of(made[second // 60], now)
            replay.report(part.posreports)
            schedule.horizon_s = now + 1
            answered[second // 60].append(replay.answer(part.balances, instant(now + 1)))
            tally.latency_s.append(time.perf_counter() - began - now)
            bar.show(second + 1, f"latency {tally.latency_s[-1]:.2f} s, {tally.late:,} steps late")
            if run.stops_late and tally.late:
                break
        found.answers = asking.result()
    spent = process.cpu_times()
    cpu_s = spent.user + spent.system - busy.user - busy.system
    found.cores = cpu_s / (time.perf_counter() - began - first)
    found.resident_gib = process.memory_info().rss / 2**30
    return answered


def real_time(directory: Path, minutes: int, roads: int) -> bool:
    """Run some minutes at the last minute's rate; return whether all is right and in time."""
    run = LiveRun(minutes, roads)
    with opened(directory, roads) as db:
        found = lived(db, run)
    print(live_text(run, found))
    return found.is_right


def live_text(run: LiveRun, found: Lived) -> str:
    """Return the result of a run as a table."""
    rate = f"{run.reports_per_minute:,.0f} reports a minute"
    head = f"\n{run.minutes} minutes of {expressways_text(run.roads)} in real time, {rate}\n"
    more = [
        ("processors", f"{found.cores:.2f}", "busy"),
        ("resident memory", f"{found.resident_gib:.1f} GiB", "at the end"),
    ]
    if before := found.wrong - found.tally.wrong:
        more.append(("wrong before", f"{before:,}", f"in the {run.before} minutes before"))
    latency = "from the first report of a second to the answers"
    return f"{head}\n{found.tally.text(more, latency)}"
