"""Replay at full speed: the first minutes of the traffic, a minute at a time."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from examples.linear_road.expenditures import answer_expenditures, history
from examples.linear_road.replay import Replay
from examples.linear_road.road_database import expressways_text, instant, opened
from examples.linear_road.rules import Rules
from examples.linear_road.screen import RunBar
from examples.linear_road.tally import RoadTally
from examples.linear_road.traffic import Traffic, expressways

PROGRESS_MINUTES = 30  # Between two lines that say how far it is.


def full_speed(directory: Path, minutes: int, roads: int) -> bool:
    """Replay the first minutes; return whether all is right."""
    traffic = expressways([Traffic(xway=xway) for xway in range(roads)], minutes)
    rules, tally, expenditures = Rules(), RoadTally(), 0
    with (
        opened(directory, roads) as db,
        RunBar("full speed", minutes, "minutes", PROGRESS_MINUTES) as bar,
    ):
        replay, spent = Replay(db), history(db)
        for at, minute in enumerate(traffic):
            began = time.perf_counter()
            answers = replay.step(minute.posreports, minute.balances, instant(60 * (at + 1)))
            expenditures += answer_expenditures(db, minute.expenditures, spent)
            tally.latency_s.append(time.perf_counter() - began)
            expected = rules.minute(minute.posreports, minute.balances)
            tally.add(minute.posreports.num_rows, [answers], expected)
            bar.show(at + 1, f"{tally.reports:,} reports, {tally.wrong:,} wrong answers")
    times = 60 * minutes / sum(tally.latency_s)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{minutes} minutes of {expressways_text(roads)} at full speed\n")
    more = [
        ("expenditures", f"{expenditures:,}", "all right"),
        ("speed", f"{times:,.1f}", "times real time"),
        ("resident memory", f"{resident:.1f} GiB", "at most"),
    ]
    print(tally.text(more, "of a minute of traffic", has_deadline=False))
    return tally.wrong == 0
