"""Counts and latencies of the answers of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from examples.linear_road.check import wrong
from examples.linear_road.replay import RoadAnswers
from examples.linear_road.rules import Expected
from examples.linear_road.screen import table_text

DEADLINE_S = 5.0  # Of every answer.


@dataclass(slots=True)
class RoadTally:
    """Answers so far. latency_s: of each step."""

    reports: int = 0
    tolls: int = 0
    charged: int = 0
    accidents: int = 0
    balances: int = 0
    wrong: int = 0
    latency_s: list[float] = field(default_factory=list)

    @property
    def late(self) -> int:
        """Steps with answers after the deadline."""
        return sum(each > DEADLINE_S for each in self.latency_s)

    def add(self, reports: int, answers: list[RoadAnswers], expected: Expected) -> None:
        """Count and check the answers to the reports of a minute."""
        self.reports += reports
        self.wrong += wrong(answers, expected)
        for each in answers:
            self.tolls += each.tolls.num_rows
            self.charged += pc.sum(pc.greater(each.tolls["toll"], 0)).as_py() or 0
            self.accidents += each.accidents.num_rows
            self.balances += each.balances.num_rows

    def text(
        self, more: list[tuple[str, str, str]], latency: str, *, has_deadline: bool = True
    ) -> str:
        """Return everything as a table.

        more: further lines. latency: what the latency of a step is.
        has_deadline: the steps are in real time.
        """
        mean, most = np.mean(self.latency_s), max(self.latency_s)
        rows = [
            ("reports", f"{self.reports:,}", ""),
            ("toll notices", f"{self.tolls:,}", f"{self.charged:,} with a toll"),
            ("accident notices", f"{self.accidents:,}", ""),
            ("balances", f"{self.balances:,}", ""),
            ("wrong answers", f"{self.wrong:,}", ""),
            *more,
            ("latency, mean", f"{mean:.2f} s", latency),
            ("latency, largest", f"{most:.2f} s", ""),
        ]
        if has_deadline:
            steps = f"of {len(self.latency_s):,} steps"
            rows.append((f"above {DEADLINE_S:.0f} s", f"{self.late:,}", steps))
        return table_text(("", "", ""), rows, remarks=True)
