"""Linear Road: every answer is checked, and the slowest is reported.

python -m examples.linear_road            three hours at full speed, then ten minutes in real time
python -m examples.linear_road 20 1       20 minutes at full speed, then one in real time
python -m examples.linear_road 20 1 2     the same with two expressways
python -m examples.linear_road 174 10 --questions 200
    174 minutes at full speed, then ten in real time; in five of these, 200 one-time questions
    about the past
python -m examples.linear_road 1 3 64 --capacity
    the largest number of expressways, up to 64, of which three minutes in real time have no late
    answer; the first number is not used
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.linear_road.beside import with_questions
from examples.linear_road.capacity import capacity
from examples.linear_road.full_speed import full_speed
from examples.linear_road.real_time import LiveRun, real_time
from examples.linear_road.traffic import MINUTES

ROADS_MAX = 64
QUESTIONS_MAX = 6_000  # A minute.


@dataclass(frozen=True, slots=True)
class RoadArguments:
    """What a run does.

    minutes: at full speed. live: minutes in real time. roads: expressways.
    questions: about the past, a minute; 0: none.
    finds_most: live is of each trial, and roads is the most that is tried.
    """

    minutes: int = MINUTES
    live: int = 10
    roads: int = 1
    questions: int = 0
    finds_most: bool = False


def arguments_of(words: Sequence[str]) -> RoadArguments:
    """Read the command line; bad arguments end the program."""
    default = RoadArguments()
    parser = argparse.ArgumentParser(prog="python -m examples.linear_road")
    add = parser.add_argument
    add("minutes", nargs="?", type=int, default=default.minutes, help="at full speed")
    add("live", nargs="?", type=int, default=default.live, help="in real time; 0: none")
    add("roads", nargs="?", type=int, default=default.roads, help="number of expressways")
    add(
        "--questions",
        type=int,
        default=0,
        metavar="N",
        help="about the past, in each second minute of the real time; the real time is then "
        "behind the minutes at full speed, in one database",
    )
    add(
        "--capacity",
        action="store_true",
        help="find the largest number of expressways, up to roads, without a late answer; "
        "minutes is not used",
    )
    found = parser.parse_args(words)
    if not 1 <= found.minutes <= MINUTES:
        parser.error(f"minutes is {found.minutes}; it is from 1 to {MINUTES}")
    if found.live < 0:
        parser.error(f"live is {found.live}; it is 0 or more")
    if not 1 <= found.roads <= ROADS_MAX:
        parser.error(f"roads is {found.roads}; it is from 1 to {ROADS_MAX}")
    if not 0 <= found.questions <= QUESTIONS_MAX:
        parser.error(f"--questions is {found.questions}; it is from 0 to {QUESTIONS_MAX}")
    if found.questions and (found.live < 2 or found.live % 2):
        parser.error(
            f"live is {found.live}; with --questions it is even and at least 2, since each "
            "second minute has questions"
        )
    if found.capacity and (found.questions or not found.live):
        parser.error("--capacity needs live, and has no --questions")
    return RoadArguments(found.minutes, found.live, found.roads, found.questions, found.capacity)


def main() -> None:
    """Run; the exit status is 1 if an answer was wrong, or late in real time."""
    found = arguments_of(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        right = _run(found, Path(folder))
    print("\nall answers are right and in time" if right else "\nan answer is wrong or late")
    sys.exit(not right)


def _run(found: RoadArguments, folder: Path) -> bool:
    if found.finds_most:
        return capacity(folder, found.live, found.roads) > 0
    if found.questions:
        run = LiveRun(found.live, found.roads, found.minutes, found.questions)
        return with_questions(folder, run)
    right = full_speed(folder / "replay", found.minutes, found.roads)
    return right and (found.live == 0 or real_time(folder / "live", found.live, found.roads))


if __name__ == "__main__":
    main()
