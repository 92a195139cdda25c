"""One-time questions about past reports, beside the standing queries (L1++ of Streaming Tables).

Source: Carafoli et al., "Streaming Tables", section VII: 20, 100 or 200 questions a minute with
predicates on time and key, each with 10,000 to over 60,000 rows as its answer. The questions here
ask for the reports near a segment in ten minutes of the past (query g of that paper).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from examples.linear_road.traffic import SECOND_US, START_US, Integers

if TYPE_CHECKING:
    from shedder.engine.engine import Engine

STRETCH_S = 600  # Event time of a question.
MILES = {"high": 3, "medium": 9, "low": 18}  # Of a question, by its selectivity.
NEWEST_SHARE = 0.25  # Questions whose stretch ends with the reports that were pushed last.
COLUMNS = ("ts", "vid", "spd", "seg", "pos")

_PLACE = f"""
    SELECT {", ".join(COLUMNS)} FROM posreports
    WHERE xway = ? AND dir = ? AND seg BETWEEN ? AND ?
"""
PRUNED = f"{_PLACE} AND ts >= ? AND ts < ?"
# No source is left out by a condition on a function of the event time.
UNPRUNED = f"{_PLACE} AND EXTRACT(EPOCH FROM ts) >= ? AND EXTRACT(EPOCH FROM ts) < ?"


@dataclass(frozen=True, slots=True)
class PastQuestion:
    """Reports from some miles in one direction, in a stretch of event time.

    selectivity: a key of MILES. start_s, end_s: seconds since START_US; the end is outside.
    first, last: segments, both inside.
    """

    selectivity: str
    start_s: int
    end_s: int
    xway: int
    direction: int
    first: int
    last: int

    def rows(self, db: Engine) -> pa.Table:
        """Ask it."""
        begin, end = (_moment(second) for second in (self.start_s, self.end_s))
        return db.execute(PRUNED, [*self._place, begin, end]).table

    def rows_of_a_scan(self, db: Engine) -> pa.Table:
        """Ask it so that all reports are read."""
        begin, end = (_moment(second).timestamp() for second in (self.start_s, self.end_s))
        return db.execute(UNPRUNED, [*self._place, begin, end]).table

    @property
    def _place(self) -> list[int]:
        return [self.xway, self.direction, self.first, self.last]


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(START_US // SECOND_US + second, UTC).replace(tzinfo=None)


@dataclass(slots=True)
class Questions:
    """Draws questions. The same seed and horizons give the same questions.

    roads: number of expressways. segments: of each.
    """

    roads: int = 1
    segments: int = 100
    seed: int = 3
    _rng: np.random.Generator = field(init=False)
    _turns: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._turns = _forever(tuple(MILES))

    def draw(self, horizon_s: int) -> PastQuestion:
        """Return the next question, about what was pushed before a second; classes take turns."""
        selectivity = next(self._turns)
        miles = min(MILES[selectivity], self.segments)
        first = int(self._rng.integers(0, self.segments - miles + 1))
        least = min(STRETCH_S, horizon_s)
        end = int(self._rng.integers(least, horizon_s + 1))
        if self._rng.random() < NEWEST_SHARE:
            end = horizon_s
        xway, direction = (int(self._rng.integers(0, count)) for count in (self.roads, 2))
        start = max(0, end - STRETCH_S)
        return PastQuestion(selectivity, start, end, xway, direction, first, first + miles - 1)


def _forever(texts: Sequence[str]) -> Iterator[str]:
    while True:
        yield from texts


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Number of rows, and the sum of their hashes: equal for equal bags of rows."""

    rows: int
    hashes: int

    @classmethod
    def of(cls, columns: Sequence[Integers]) -> RowDigest:
        """RowDigest rows that are given as columns."""
        mixed: NDArray[np.uint64] = np.zeros(len(columns[0]), np.uint64)
        for column in columns:
            mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        return cls(len(mixed), int(mixed.sum(dtype=np.uint64)))


def digest_of(rows: pa.Table) -> RowDigest:
    """RowDigest the answer to a question."""
    return RowDigest.of([rows[name].cast(pa.int64()).to_numpy() for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """An answer to a question. seconds: from the instant at which it was due to its last row."""

    question: PastQuestion
    seconds: float
    digest: RowDigest


@dataclass(slots=True)
class Schedule:
    """Questions that are asked at fixed instants, beside the pushes of another thread.

    horizon_s: seconds of event time that have been pushed; the thread that pushes sets it.
    """

    db: Engine
    questions: Questions
    horizon_s: int

    def answers(self, due_s: Sequence[float]) -> list[PastAnswer]:
        """Ask a question at each instant, or as soon as the one before it is answered.

        due_s: of time.perf_counter.
        """
        found = []
        for due in due_s:
            time.sleep(max(0.0, due - time.perf_counter()))
            question = self.questions.draw(self.horizon_s)
            rows = question.rows(self.db)
            seconds = time.perf_counter() - due
            found.append(PastAnswer(question, seconds, digest_of(rows)))
        return found


@dataclass(slots=True)
class Past:
    """All reports that were pushed, in order, outside of the database."""

    _minutes: list[dict[str, NDArray[Any]]] = field(default_factory=list)

    def add(self, reports: pa.Table) -> None:
        """Keep the reports of a minute, the next one."""
        times_us = reports["ts"].cast(pa.int64()).to_numpy()
        kept: dict[str, NDArray[Any]] = {
            "second": ((times_us - START_US) // SECOND_US).astype(np.int32),
            "vid": reports["vid"].to_numpy(),
            "pos": reports["pos"].to_numpy().astype(np.int32),
        }
        for name in ("spd", "xway", "dir", "seg"):
            kept[name] = reports[name].to_numpy().astype(np.int16)
        self._minutes.append(kept)

    def digest(self, question: PastQuestion) -> RowDigest:
        """Return the digest of the right answer."""
        first, end = question.start_s // 60, -(-question.end_s // 60)
        parts = [_matching(minute, question) for minute in self._minutes[first:end]]
        columns = [np.concatenate([part[at] for part in parts]) for at in range(len(COLUMNS))]
        return RowDigest.of(columns)


def _matching(minute: dict[str, NDArray[Any]], question: PastQuestion) -> list[Integers]:
    """Return the columns of the rows of a minute that answer a question."""
    second, seg = minute["second"], minute["seg"]
    (at,) = np.nonzero(
        (second >= question.start_s)
        & (second < question.end_s)
        & (minute["xway"] == question.xway)
        & (minute["dir"] == question.direction)
        & (seg >= question.first)
        & (seg <= question.last)
    )
    rest = [minute[name][at].astype(np.int64) for name in COLUMNS[1:]]
    return [START_US + second[at].astype(np.int64) * SECOND_US, *rest]
