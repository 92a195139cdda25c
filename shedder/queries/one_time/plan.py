"""One-time plan of a query: the sources that are read in turn, and what they are chosen from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.evidence import Evidence
from shedder.streams.live_sample import SampleView
from shedder.streams.windows import Span


class Source(Enum):
    """What a step of a plan reads, as EXPLAIN names it."""

    SAMPLE = "the live sample"
    PART = "the archive, as much of it as the target needs"
    REDUCED = "the archive, reduced as the query says"
    ROLLUP = "the rollup {}, exactly"
    INDEX = "the index on {}, exactly"
    ARCHIVE = "the archive and the tail, exactly"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One source of a plan.

    source: what is read.
    name: of the rollup, of the column with the index, or of the reduction; "" for other sources.
    reason: why the source has this place in the plan.
    tuples: of runs and log that are read, about; None: the scan decides while it reads.
    detail: what is taken from a rollup or saved by an index.
    """

    source: Source
    name: str = ""
    reason: str = ""
    tuples: int | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The source in words."""
        return self.source.value.format(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class ScanEstimate:
    """What a part of the tuples said.

    evidence: of the part.
    error: see `error_of`.
    share: of all tuples, as a simple random sample; 0 where the part was no such sample.
    is_late: there was no time to read on.
    """

    evidence: Evidence
    error: float
    share: float
    is_late: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OneTimePlan:
    """The sources of a one-time query in the order in which they are read.

    steps: at least one. A step is read if those before it miss the target; the last one answers.
    look: at the sample, taken to choose the steps; None: the choice needed none.
    predicted: the sample's answer, with the half-widths that it would have.
    """

    steps: tuple[PlanStep, ...]
    look: ScanEstimate | None = None
    predicted: Answer | None = None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """What of the stream a one-time query is over, and how far the stream has come.

    start_us, end_us: event time, half open; None is open.
    watermark_us: of the stream; None: it has none.
    complete: the watermark has passed end_us, or there is no end.
    built: tuples of the stream that came as summaries, which standing queries alone know.
    dropped: tuples of this stretch that were dropped at the door.
    doubted: why no bound holds, such as a loss of an unknown number of tuples; empty: bounds hold.
    """

    start_us: int | None = None
    end_us: int | None = None
    watermark_us: int | None = None
    complete: bool = True
    built: int = 0
    dropped: int = 0
    doubted: str = ""

    @classmethod
    def of(cls, span: Span, watermark_us: int | None) -> Self:
        """Return the stretch of a window; it is complete if the watermark has passed its end."""
        end_us = span.end_us
        passed = watermark_us is not None and end_us is not None and watermark_us >= end_us
        return cls(span.start_us, end_us, watermark_us, end_us is None or passed)


@dataclass(frozen=True, slots=True, eq=False)
class KnownSources:
    """What is known of the sources of a one-time query before one is read.

    exact: how everything is read.
    is_soonest: the exact step reads so little that no part is sooner.
    part: how the archive is read in part (PART or REDUCED); None: it cannot be.
    sample: the live sample; None: the stream has none that represents all its tuples.
    stretch: what of the stream the query is over.
    archive: how much there is in runs and log, in words.
    has_extremes: the part of the archive is read beside the extreme rows of the sample.
    """

    exact: PlanStep = PlanStep(Source.ARCHIVE)
    is_soonest: bool = False
    part: PlanStep | None = None
    sample: SampleView | None = None
    stretch: TimeRange = TimeRange()
    archive: str = ""
    has_extremes: bool = False
