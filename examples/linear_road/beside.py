"""L1++: one-time questions about the past, beside the standing queries in real time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.linear_road.past_questions import MILES, Past, PastAnswer, Questions, digest_of
from examples.linear_road.real_time import LiveRun, live_text, lived
from examples.linear_road.road_database import opened
from examples.linear_road.screen import RunBar, table_text
from examples.linear_road.visibility import visibilities, visibility_text
from shedder.engine.engine import Engine

PAIRS = 10  # Questions of each selectivity that are also answered by a scan.


@dataclass(frozen=True, slots=True)
class QuestionPair:
    """A question that was asked twice, while nothing else ran.

    pruned_s: without the runs of other times. scan_s: over all reports. wrong: of both answers.
    """

    selectivity: str
    pruned_s: float
    scan_s: float
    wrong: int


def with_questions(directory: Path, run: LiveRun) -> bool:
    """Run in real time with questions; return whether all is right and in time."""
    with opened(directory / "beside", run.roads) as db:
        found = lived(db, run)
        pairs = _pairs(db, found.past, 60 * (run.before + run.minutes), run.roads)
    seen = visibilities(directory / "visible")
    wrong = sum(each.digest != found.past.digest(each.question) for each in found.answers)
    wrong += sum(pair.wrong for pair in pairs)
    print(live_text(run, found))
    print(f"\nLatency of these answers in minutes without and with {run.questions} questions\n")
    print(_latency_text(found.tally.latency_s))
    minutes = run.before + run.minutes
    print(f"\nOne-time questions about {minutes} minutes of the past\n")
    print(_questions_text(found.answers, pairs))
    print(f"\n  {wrong:,} of {len(found.answers) + 2 * len(pairs):,} answers are wrong")
    print("\nA question after each push of a second\n")
    print(visibility_text(seen))
    return found.is_right and wrong == 0 and all(each.unseen == 0 for each in seen.values())


def _pairs(db: Engine, past: Past, horizon_s: int, roads: int) -> list[QuestionPair]:
    """Ask some questions in both ways, by turns."""
    questions, found = Questions(roads, seed=4), []
    count = PAIRS * len(MILES)
    with RunBar("scans", count, "questions", count) as bar:
        for at in range(count):
            question = questions.draw(horizon_s)
            began = time.perf_counter()
            pruned = question.rows(db)
            between = time.perf_counter()
            scan = question.rows_of_a_scan(db)
            ended = time.perf_counter()
            truth = past.digest(question)
            wrong = sum(digest_of(rows) != truth for rows in (pruned, scan))
            found.append(
                QuestionPair(question.selectivity, between - began, ended - between, wrong)
            )
            bar.show(at + 1, "")
    return found


def _questions_text(answers: Sequence[PastAnswer], pairs: Sequence[QuestionPair]) -> str:
    rows = []
    for selectivity in MILES:
        mine = [each for each in answers if each.question.selectivity == selectivity]
        seconds = [each.seconds for each in mine]
        twice = [pair for pair in pairs if pair.selectivity == selectivity]
        pruned_s = float(np.mean([pair.pruned_s for pair in twice]))
        scan_s = float(np.mean([pair.scan_s for pair in twice]))
        times_s = (float(np.mean(seconds)), max(seconds), pruned_s, scan_s)
        rows.append(
            (
                selectivity,
                f"{len(mine):,}",
                f"{np.mean([each.digest.rows for each in mine]):,.0f}",
                *(f"{1e3 * each:,.0f} ms" for each in times_s),
                f"{scan_s / pruned_s:.1f}",
            )
        )
    head = ("selectivity", "questions", "rows", "mean", "largest", "alone", "scan", "scan/alone")
    return table_text(head, rows)


def _latency_text(latency_s: Sequence[float]) -> str:
    """Return the latency of minutes with questions beside that of minutes without."""
    minutes = np.array(latency_s).reshape(-1, 60)
    without, beside = minutes[0::2].ravel(), minutes[1::2].ravel()
    figures = [
        (float(each.mean()), float(np.quantile(each, 0.99)), float(each.max()))
        for each in (without, beside)
    ]
    rows = [
        (text, *(f"{figure:.3f} s" for figure in each))
        for text, each in zip(("without", "with"), figures, strict=True)
    ]
    ratios = (f"{second / first:.2f}" for first, second in zip(*figures, strict=True))
    return table_text(("minutes", "mean", "99 %", "largest"), [*rows, ("ratio", *ratios)])
