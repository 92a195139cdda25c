"""Targets that few samples meet: the intervals that are shown because they meet one.

A target is calibrated by streams of its own, so that a given share of the samples meets it at the
first look. Other samples are followed by the archive; an exact answer shows no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shedder.queries.answers.answer import Answer
from synopses.intervals.sequential_looks import alone_confidence, look_confidence
from tests.engine.shown_rows import ALWAYS, BLOCKS, SLACK, Score, Service, Source, World
from tests.seeds import derived

CONFIDENCE: Final = 0.95
PILOTS: Final = 40
MEETS = (0.5, 0.25)  # Shares of the samples that meet a target at the first look.
SOURCES: Mapping[str, Source] = {
    "live sample": Source(),
    "archive in part": Source(BLOCKS, (4, 11)),
}
WHOLE, TOP = "AVG(x) WHERE u < 0.2", "AVG(x) ORDER BY DESC LIMIT"
QUESTIONS: Mapping[str, str] = {
    WHOLE: "SELECT AVG(x) AS a FROM {name} WHERE u < 0.2",
    TOP: "SELECT g, AVG(x) AS a FROM {name} GROUP BY g ORDER BY a DESC LIMIT 3",
}


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A question with a target that the share `meets` of the samples meets.

    within: the target, in units of the value.
    """

    world: World
    question: str
    meets: float
    within: float

    def score(self, service: Service, source: Source, seed: int) -> Score:
        """One stream: intervals that were shown, and those that held."""
        text = f"{QUESTIONS[self.question]} WITHIN {self.within!r} ABSOLUTE"
        answer = source.answers(service, self.world, {"a": text}, confidence=CONFIDENCE, seed=seed)[
            "a"
        ]
        score, truth = Score(), truths(self.world, self.question)
        for row in answer.rows():
            true = truth[row.get("g")]
            slack = SLACK * abs(true)
            if row["a_bound"] == "exact":
                score.exact += 1
                score.right += abs(row["a"] - true) <= slack
            elif row["a_bound"] == "interval":
                score.shown += 1
                score.held += row["a_low"] - slack <= true <= row["a_high"] + slack
                assert row["a_met"] == (_reach(row) <= self.within), (row, self.within)
        return score


def truths(world: World, question: str) -> Mapping[int | None, float]:
    """The true averages of a question's rows."""
    if question == TOP:
        return {group: each["a"] for group, each in world.truth.items()}
    x, u = (world.arrived[name].to_numpy() for name in "xu")
    few = x[u < 0.2].tolist()
    return {None: math.fsum(few) / len(few)}


def targets(service: Service, world: World, question: str, seed: int) -> list[Target]:
    """The question's targets, one for each of MEETS.

    The pilots are asked at the confidence at which a first look without a target to speak of has
    the widths of a first look at CONFIDENCE.
    """
    spent = (1.0 - look_confidence(0, CONFIDENCE)) / (1.0 - alone_confidence(CONFIDENCE))
    confidence = 1.0 - (1.0 - CONFIDENCE) * spent
    pilot, texts = Source(clauses=ALWAYS), {"a": QUESTIONS[question]}
    widths = [
        _widest(
            pilot.answers(
                service, world, texts, confidence=confidence, seed=derived(seed, "pilot", at)
            )["a"]
        )
        for at in range(PILOTS)
    ]
    return [Target(world, question, meets, float(np.quantile(widths, meets))) for meets in MEETS]


def _widest(answer: Answer) -> float:
    return max(_reach(row) for row in answer.rows())


def _reach(row: Mapping[str, float]) -> float:
    return max(row["a_high"] - row["a"], row["a"] - row["a_low"])
