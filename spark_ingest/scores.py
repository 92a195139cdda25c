"""Scores: how often intervals held, against how often they say they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import binom

from shedder.queries.certification.value_verdict import Verdict

MISSING = "(missing groups)"
PLACES = "(certain rows)"
BESIDE_VALUES = frozenset({MISSING, PLACES})
"""The aggregate's name under which the bound on groups that an answer lacks is judged."""
CHOSEN = "(rows of LIMIT)"
"""The source's name under which rows that were chosen by their values are pooled."""

ALARM = 1e-6
"""Probability that a gate rejects intervals that cover exactly as often as they say."""

# A tenth of a percent of trials lies outside of the band that the plots draw.
_BAND = 0.001


@dataclass(frozen=True, slots=True)
class Made:
    """What a value was computed from.

    column: column that was aggregated; empty for COUNT(*).
    shape: shape of the column's data, in words.
    thinning: smallest share of the tuples that was read.
    size_bytes: bytes of a standing query's synopses, or bytes read from the archive; None if
      unknown.
    chosen: whether HAVING or LIMIT chose the row by its values.
    """

    column: str = ""
    shape: str = ""
    thinning: float = 1.0
    size_bytes: int | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and where it came from.

    question: number of the question. key: the group, printed; empty without groups.
    aggregate: as the language writes it. source: what the answer was made from.
    confidence: that the interval claims; 1.0 when it claims certainty. made: of what.
    """

    question: int
    key: str
    aggregate: str
    source: str
    confidence: float
    verdict: Verdict
    made: Made = Made()


@dataclass(frozen=True, slots=True)
class Score:
    """The coverage of one kind of interval.

    A question is one trial, whatever its groups: its values share one sample, so a trial's score
    is the share of the question's intervals that held. hits: the sum of these. required: fewer
    hits than this raise the alarm. confidence: mean over the trials. band_low, band_high: shares
    of hits between which all but 0.1 % of trials lie, were the claim exactly true.
    """

    aggregate: str
    source: str
    trials: int
    values: int
    values_held: int
    hits: float
    required: int
    confidence: float
    band_low: float
    band_high: float
    error_median: float | None
    error_p95: float | None
    half_width_median: float | None

    @property
    def coverage(self) -> float:
        """Share of trials that held."""
        return self.hits / self.trials

    @property
    def passed(self) -> bool:
        """Return whether the coverage is not below what chance allows."""
        return self.hits >= self.required - 1e-9


@dataclass(frozen=True, slots=True)
class Tally:
    """Judged values that make one kind of claim, counted value by value.

    values: judged. held: of these, values whose claim is true. questions: that the values answer.
    """

    values: int
    held: int
    questions: int

    @property
    def missed(self) -> int:
        """Values whose claim is false."""
        return self.values - self.held

    @property
    def share(self) -> float:
        """Share of the values whose claim is true; 1 of no values."""
        return self.held / self.values if self.values else 1.0


@dataclass(frozen=True, slots=True)
class Attainment:
    """What became of targets: values with one, those said to meet it, those that truly did."""

    aggregate: str
    values: int
    met: int
    met_and_attained: int
    attained: int


@dataclass(slots=True)
class GroupCount:
    """Groups of all answers that list every group they know.

    answers: with groups. there: groups in truth. answered: of these. declared: missing, and so
    small that the answer says it may lack them. undeclared: missing beyond that.
    """

    answers: int = 0
    there: int = 0
    answered: int = 0
    declared: int = 0
    undeclared: int = 0

    def add(self, *, there: int, absent: int, declared: int) -> None:
        """Count one answer. absent: groups that it lacks, of which it says that of `declared`."""
        self.answers += 1
        self.there += there
        self.answered += there - absent
        self.declared += declared
        self.undeclared += absent - declared


def gate(confidences: Sequence[float], alarm: float = ALARM) -> int:
    """The smallest number of hits that is believable of intervals with these confidences.

    P(hits < result) <= alarm when every interval covers with exactly its own confidence,
    independently: the alarm quantile of a Poisson-binomial distribution (of a binomial one when
    all confidences are equal).
    """
    return int(np.searchsorted(np.cumsum(_hits(confidences)), alarm))


def band(confidences: Sequence[float], outside: float = _BAND) -> tuple[float, float]:
    """Shares of hits between which 1 - outside of all repetitions lie; for plots."""
    total = np.cumsum(_hits(confidences))
    low = int(np.searchsorted(total, outside / 2))
    high = int(np.searchsorted(total, 1 - outside / 2))
    return low / len(confidences), min(high, len(confidences)) / len(confidences)


def scores(judged: Iterable[Judged]) -> list[Score]:
    """Coverage per aggregate and source of intervals that claim less than certainty."""
    return [_score(*name, rows) for name, rows in _cells(judged, lambda j: j.confidence < 1.0)]


def by_data(judged: Iterable[Judged]) -> list[Score]:
    """Coverage per column that was aggregated and the shape of its data, all aggregates together.

    The scores have columns as aggregates and shapes as sources.
    """
    inexact = [j for j in judged if j.confidence < 1.0 and j.made.column]
    return [_score(*name, rows) for name, rows in _cells(inexact, _of_interval, _data)]


def certain(judged: Iterable[Judged]) -> list[Score]:
    """Coverage per aggregate and source of values that claim certainty: every one must hold."""
    return [_score(*name, rows) for name, rows in _cells(judged, lambda j: j.confidence == 1.0)]


def pooled(judged: Sequence[Judged]) -> list[Score]:
    """Coverage per source, all aggregates together; of the rows that were chosen; of everything."""
    inexact = [j for j in judged if j.confidence < 1.0 and _of_interval(j)]
    sources = sorted({j.source for j in inexact})
    found = [_score("all", s, [j for j in inexact if j.source == s]) for s in sources]
    chosen = [j for j in inexact if j.made.chosen]
    found += [_score("all", CHOSEN, chosen)] if chosen else []
    return [*found, _score("all", "all", inexact)] if inexact else []


def tally_intervals(judged: Iterable[Judged]) -> Tally:
    """Count the intervals that claim less than certainty: the values that `pooled` scores."""
    return _tally(j for j in judged if j.confidence < 1.0 and _of_interval(j))


def tally_certain(judged: Iterable[Judged]) -> Tally:
    """Count the values that claim certainty, exact values and certain intervals."""
    return _tally(j for j in judged if j.confidence == 1.0 and j.verdict.claim.bound != "none")


def attainments(judged: Iterable[Judged]) -> list[Attainment]:
    """Per aggregate: targets said to be met, and truly met."""
    by_aggregate: dict[str, list[Verdict]] = {}
    for one in judged:
        if one.verdict.claim.met is not None and one.verdict.claim.bound != "exact":
            by_aggregate.setdefault(one.aggregate, []).append(one.verdict)
    return [
        Attainment(
            aggregate,
            len(verdicts),
            sum(bool(v.claim.met) for v in verdicts),
            sum(bool(v.claim.met) and v.attained is not False for v in verdicts),
            sum(v.attained is True for v in verdicts),
        )
        for aggregate, verdicts in sorted(by_aggregate.items())
    ]


def _tally(judged: Iterable[Judged]) -> Tally:
    rows = list(judged)
    held = sum(one.verdict.held for one in rows)
    return Tally(len(rows), held, len({one.question for one in rows}))


def _kind(one: Judged) -> tuple[str, str]:
    return one.aggregate, one.source


def _data(one: Judged) -> tuple[str, str]:
    return one.made.column, one.made.shape


def _of_interval(one: Judged) -> bool:
    return one.verdict.claim.bound == "interval"


def _cells(
    judged: Iterable[Judged],
    wanted: Callable[[Judged], bool],
    named: Callable[[Judged], tuple[str, str]] = _kind,
) -> list[tuple[tuple[str, str], list[Judged]]]:
    found: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        if one.verdict.claim.bound != "none" and wanted(one):
            found.setdefault(named(one), []).append(one)
    return sorted(found.items())


def _score(aggregate: str, source: str, rows: Sequence[Judged]) -> Score:
    questions: dict[int, list[Judged]] = {}
    for one in rows:
        questions.setdefault(one.question, []).append(one)
    confidences = [members[0].confidence for members in questions.values()]
    shares = [_mean([one.verdict.held for one in members]) for members in questions.values()]
    errors = sorted(one.verdict.error for one in rows if one.verdict.error is not None)
    widths = [one.verdict.half_width for one in rows if one.verdict.half_width is not None]
    low, high = band(confidences)
    return Score(
        aggregate,
        source,
        len(questions),
        len(rows),
        sum(one.verdict.held for one in rows),
        math.fsum(shares),
        gate(confidences),
        _mean(confidences),
        low,
        high,
        median(errors) if errors else None,
        errors[math.ceil(0.95 * len(errors)) - 1] if errors else None,
        median(widths) if widths else None,
    )


def _hits(confidences: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Probabilities of 0, 1, ... hits."""
    levels, counts = np.unique(np.asarray(confidences, np.float64), return_counts=True)
    total = np.ones(1)
    for level, count in zip(levels, counts, strict=True):
        total = np.convolve(total, binom.pmf(np.arange(count + 1), count, level))
    return total


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
