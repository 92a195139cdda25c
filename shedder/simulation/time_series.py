"""Time series of a world, and totals of its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from shedder.simulation.verdict import FALSE_ALARM, AnswerVerdict, gate, gate_of_draws

Row = dict[str, float | int | None]


@dataclass(slots=True)
class Answers:
    """Of one query: what became of its answers, in all and while it was thinned.

    confidence: of its intervals. checked: answers that were compared with the truth. error_of: by
    output, how many errors and their sum. untold: by output, values that answers should have had
    and had not. draws: as in a verdict, of all windows.
    """

    confidence: float = 1.0
    answers: int = 0
    checked: int = 0
    thinned_answers: int = 0
    intervals: int = 0
    held: int = 0
    exact: int = 0
    wrong: int = 0
    unbounded: int = 0
    refused: int = 0
    errors: int = 0
    error_sum: float = 0.0
    width_sum: float = 0.0
    widths: int = 0
    latest_error: float | None = None
    latest_width: float | None = None
    error_of: dict[str, tuple[int, float]] = field(default_factory=dict)
    untold: dict[str, int] = field(default_factory=dict)
    draws: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)

    def count(self, *, is_refusal: bool) -> None:
        """Count one answer, or one refusal to answer."""
        self.answers += 1
        self.refused += is_refusal

    def add(self, verdict: AnswerVerdict, *, confidence: float, thinned: bool) -> None:
        """One more answer."""
        self.confidence = min(self.confidence, confidence)
        self.checked += 1
        self.thinned_answers += thinned
        self.intervals += verdict.intervals
        self.held += verdict.held
        for draw, (intervals, held) in verdict.one_draw.items():
            before = self.draws.get(draw, (0, 0))
            self.draws[draw] = before[0] + intervals, before[1] + held
        self.exact += verdict.exact
        self.wrong += verdict.wrong
        self.unbounded += verdict.unbounded
        errors = tuple(error for each in verdict.errors.values() for error in each)
        self.errors += len(errors)
        self.error_sum += math.fsum(errors)
        for output, each in verdict.errors.items():
            count, total = self.error_of.get(output, (0, 0.0))
            self.error_of[output] = count + len(each), total + math.fsum(each)
            self.untold[output] = self.untold.get(output, 0) + verdict.untold[output]
        self.widths += len(verdict.widths)
        self.width_sum += math.fsum(verdict.widths)
        self.latest_error = _mean(errors)
        self.latest_width = _mean(verdict.widths) if verdict.intervals else 0.0

    @property
    def compared(self) -> tuple[int, int]:
        """All intervals that there were, and those that held."""
        intervals = self.intervals + sum(many for many, _ in self.draws.values())
        return intervals, self.held + sum(held for _, held in self.draws.values())

    @property
    def coverage(self) -> float | None:
        """Share of intervals that held; None: there were none."""
        intervals, held = self.compared
        return held / intervals if intervals else None

    @property
    def error(self) -> float | None:
        """Mean relative error of all values."""
        return self.error_sum / self.errors if self.errors else None

    @property
    def is_covered(self) -> bool:
        """Return whether enough intervals held, within chance, and all exact values are exact."""
        return self.covers(FALSE_ALARM)

    def covers(self, alarm: float) -> bool:
        """Decide as `is_covered` does; alarm: the probability that honest intervals fail."""
        apart = self.held >= gate(self.intervals, self.confidence, alarm)
        drawn = gate_of_draws(self.draws.values(), self.confidence, alarm)
        return not self.wrong and apart and drawn


@dataclass(slots=True)
class Series:
    """A row per interval of time; columns as they come up."""

    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """The next row."""
        self.rows.append({name: _rounded(value) for name, value in row.items()})

    @property
    def names(self) -> list[str]:
        """Return the names of all columns, in the order of their first rows."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def column(self, name: str) -> list[float | int | None]:
        """Of all rows."""
        return [row.get(name) for row in self.rows]


def _rounded(value: float | int | None) -> float | int | None:
    """Six digits are more than a plot shows, and keep the file small."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _mean(values: tuple[float, ...]) -> float | None:
    return math.fsum(values) / len(values) if values else None
