"""Progressive scan: a random part of the archive, read until a target is met."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from shedder.archive.reductions.reduction import BlockStatistics, ScanStatistics
from shedder.archive.reductions.registry import NamedReduction
from shedder.archive.sampling.block_sample import BlockSample
from shedder.archive.sampling.run_sample import RunSample
from shedder.archive.tasks.deadline import Deadline
from shedder.archive.tasks.interruptible_call import aside
from shedder.cql.statements.bound_query import BoundQuery
from shedder.errors import DeadlineExceeded
from shedder.queries.answers.answer import ArchiveRead
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.one_time.plan import ScanEstimate, TimeRange
from shedder.queries.one_time.precision_progress import at_look, claimed, error_of
from shedder.queries.sampling.from_strata import evidence_from_strata
from shedder.streams.extreme_rows import ExtremesView
from shedder.streams.live_sample import SampleView
from synopses.intervals.sequential_looks import MET_OVER

SOURCE: Final = "archive sample"
TAIL: Final = "tail"
WORTH_A_PART: Final = 0.4  # Share of all tuples; above it a full scan is faster, and exact.
LOOKS_MAX: Final = 24  # The parts of delta that are left for later ones are next to nothing.
BYTES_MAX: Final = 256 << 20  # Of tuples held by a scan in part.
PART_RUNS: Final = 8  # So that threads have enough to share.
PART_ROWS: Final = 1 << 19  # Some milliseconds.
ENOUGH_ROWS: Final = 100
_ASIDE_ROWS: Final = 100_000  # That take longer to estimate from than one waits gladly.
_VALUE_BYTES: Final = 16  # Of one value, roughly, while it is being estimated from.
_SHARES_MAX: Final = 8  # More different shares are brought to halves, quarters ... as strata.


@dataclass(frozen=True, slots=True)
class ProgressiveScan:
    """One question to a stream's archive, by a reduction.

    stretch: of event time; narrow: whether runs reach beyond it, so that rows must be filtered.
    position: after the last tuple that there is. part_runs, part_rows: that are read, both at
    least, before the r-UDF is asked again. bytes_max: of tuples held; above it, everything is read
    instead. requested: what was wanted last, of each run. extremes: the extreme rows of all tuples,
    with the columns that are read; None: they are not known.
    """

    query: BoundQuery
    sample: BlockSample
    reduction: NamedReduction
    stretch: TimeRange
    narrow: bool
    position: int
    deadline: Deadline
    rng: np.random.Generator
    part_runs: int = PART_RUNS
    part_rows: int = PART_ROWS
    bytes_max: int = BYTES_MAX
    requested: list[float] = field(default_factory=list)
    extremes: ExtremesView | None = None

    def read(self, before: ScanEstimate | None) -> ScanEstimate | None:
        """The last look at what was read; None where everything should be read instead.

        Args:
          before: the look at the live sample that came before, if there was one.

        Raises:
          BadReduction: from the reduction. CorruptData: a file is damaged.
          Cancelled; DeadlineExceeded: before there was anything to look at.
        """
        last = None
        scan = self._first(before)
        requested = self._wanted(scan)
        while True:
            try:
                if not self._extend(scan, requested):
                    return None
                last = self._look(scan, requested)
            except DeadlineExceeded:
                if last is None:
                    raise
                evidence = replace(last.evidence, notes=(*last.evidence.notes, self._late()))
                return replace(last, evidence=evidence, is_late=True)
            if not self.reduction.reads_on or last.error <= 1.0:
                return last
            scan = replace(
                scan, rows_read=self._rows(requested), look=scan.look + 1, error=last.error
            )
            wanted = self._wanted(scan)
            if scan.look >= LOOKS_MAX or not _is_finer(wanted, requested):
                return last
            requested = wanted

    # --- what is wanted -----------------------------------------------------------------------

    def _first(self, before: ScanEstimate | None) -> ScanStatistics:
        rows, confidence = self.sample.run_rows, self.query.confidence
        if before is None or not self.reduction.reads_on:
            return ScanStatistics(rows, confidence=confidence)
        read = int(before.share * rows)
        return ScanStatistics(rows, read, 1, before.error, confidence)

    def _wanted(self, scan: ScanStatistics, begin: int = 0, end: int | None = None) -> list[float]:
        """The reduction of runs [begin, end), as the r-UDF wants it now."""
        runs = self.sample.runs
        newest_us = max((each.run.high_us for each in runs), default=0)
        blocks = [
            BlockStatistics(
                each.rows,
                each.blocks,
                each.run.low_us,
                each.run.high_us,
                newest_us,
                MappingProxyType(each.run.basics),  # The code of an r-UDF gets it.
                scan,
            )
            for each in runs[begin:end]
        ]
        return self.reduction.wanted_of(blocks, self.deadline.check)

    def _extend(self, scan: ScanStatistics, requested: list[float]) -> bool:
        """Read what is wanted; False where everything should be read instead.

        One that is not asked after looks is asked again when the scan comes to a run, for it may
        follow the live load, or what was read so far; `requested` is what was wanted last.
        """
        runs, given = self.sample.runs, dict[float, float]()
        for begin, end in list(self._parts(requested)):
            if begin:
                now = replace(scan, rows_read=self.sample.rows_read)
                requested[begin:end] = self._wanted(now, begin, end)
            self.requested[:] = requested
            shares = self._shares(requested, begin, given)
            if self._is_too_much(shares):
                return False
            rows = sum(share * each.rows for share, each in zip(shares, runs, strict=True))
            planned = 0 if end == len(runs) else math.ceil(rows)
            part = [share if at < end else 0.0 for at, share in enumerate(shares)]
            self.sample.extend(part, self.deadline, planned)
        return True

    def _parts(self, reductions: Sequence[float]) -> Iterator[tuple[int, int]]:
        """Runs [begin, end) that are read between two questions to the r-UDF."""
        runs = self.sample.runs
        begin, rows = 0, 0.0
        for at, (reduction, each) in enumerate(zip(reductions, runs, strict=True)):
            rows += (1.0 - reduction) * each.rows
            is_part = at + 1 - begin >= self.part_runs and rows >= self.part_rows
            if is_part and at + 1 < len(runs) and not self.reduction.reads_on:
                yield begin, at + 1
                begin, rows = at + 1, 0.0
        yield begin, len(runs)

    def _shares(
        self, reductions: Sequence[float], begin: int, given: dict[float, float]
    ) -> list[float]:
        """The share of every run that is read, at least what is wanted, of few different ones.

        Those before begin have been read. given: by wanted share, so that it is given alike later.
        """
        runs = self.sample.runs
        wanted = _enough([1.0 - reduction for reduction in reductions[begin:]], runs[begin:])
        if len({*wanted, *given}) > _SHARES_MAX:
            wanted = [float(2.0 ** np.ceil(np.log2(share))) for share in wanted]
        at_least = not self.reduction.reads_on  # Else it asks again.
        fitting = self.sample.fitted([1.0] * begin + wanted, at_least=at_least)[begin:]
        for share, fit in zip(wanted, fitting, strict=True):
            given.setdefault(share, fit)
        return [each.share for each in runs[:begin]] + [given[share] for share in wanted]

    def _is_too_much(self, shares: Sequence[float]) -> bool:
        """Return whether reading everything, exactly, is the better way."""
        rows = sum(share * each.rows for share, each in zip(shares, self.sample.runs, strict=True))
        if all(share >= 1.0 for share in shares):
            return True
        width = _VALUE_BYTES * max(1, len(self.sample.columns))
        if rows * width > self.bytes_max:
            return True
        return self.reduction.reads_on and rows > WORTH_A_PART * self.sample.run_rows

    def _rows(self, requested: Sequence[float]) -> int:
        """Tuples of runs that were asked for, or kept; fitting to blocks leaves a few out."""
        rows = sum((1.0 - r) * s.rows for r, s in zip(requested, self.sample.runs, strict=True))
        return max(math.ceil(rows), self.sample.rows_kept)

    # --- what was found -----------------------------------------------------------------------

    def _look(self, scan: ScanStatistics, requested: Sequence[float]) -> ScanEstimate:
        query = self.query
        look = scan.look if self.reduction.reads_on else None
        evidence = self._estimated(look)
        error = 0.0 if query.target is None else error_of(query, evidence)
        if look == 0 and 0.0 < error <= 1.0 / MET_OVER:
            alone = self._estimated(look, alone=True)
            # A sample that is thinned is drawn again.
            evidence = alone if error_of(query, alone) <= 1.0 else evidence
        runs, sample = self.sample.runs, self.sample
        read = ArchiveRead(
            reduction=self.reduction.text,
            asked_min=min(requested, default=0.0),
            asked_max=max(requested, default=0.0),
            given_min=1.0 - max((each.share for each in runs), default=1.0),
            given_max=1.0 - min((each.share for each in runs), default=1.0),
            blocks_read=sum(each.blocks_read for each in runs),
            blocks=sum(each.blocks for each in runs),
            bytes_read=sample.bytes_read,
            bytes_stored=sum(each.run.size_bytes for each in runs),
            looks=scan.look + 1,
        )
        sources = (SOURCE, TAIL) if sample.tail_rows else (SOURCE,)
        share = sample.rows_read / sample.run_rows if sample.run_rows else 0.0
        evidence = replace(
            evidence,
            position=self.position,
            sources=sources,
            archive=read,
            archive_share_read=share,
        )
        return ScanEstimate(
            evidence, error, (sample.rows_kept + sample.tail_rows) / max(1, sample.population)
        )

    def _estimated(self, look: int | None, *, alone: bool = False) -> Evidence:
        """What was read says at a look; None: the only one. alone: no other look will follow."""
        query, stretch = self.query, self.stretch

        def estimate() -> Evidence:
            return evidence_from_strata(
                query if look is None else at_look(query, look, alone=alone),
                self._views(),
                self.rng,
                start_us=stretch.start_us if self.narrow else None,
                end_us=stretch.end_us if self.narrow else None,
                marked=self.sample.marked,
            )

        is_long = self.sample.rows_kept > _ASIDE_ROWS
        evidence = aside(estimate, self.deadline.check) if is_long else estimate()
        return evidence if look is None else claimed(query, look, evidence, alone=alone)

    def _views(self) -> list[SampleView]:
        """The samples; one of all tuples stands beside the extreme rows."""
        views = self.sample.views()
        if len(views) > 1:
            return views
        return [replace(view, extremes=self.extremes) for view in views]

    def _late(self) -> str:
        share = 100 * self.sample.rows_read / max(1, self.sample.run_rows)
        return f"the time was up when {share:.3g} % of the archive's tuples had been read"


def _enough(shares: Sequence[float], runs: Sequence[RunSample]) -> list[float]:
    """Shares under which all runs of one share give ENOUGH_ROWS tuples, or all that they have.

    Of fewer nothing can be told, and that spoils what other runs tell: what needs one sample of
    all, a quantile say, is asked of as small a part of each.
    """
    rows = Counter[float]()
    for share, each in zip(shares, runs, strict=True):
        rows[share] += each.rows
    return [min(1.0, max(share, ENOUGH_ROWS / rows[share])) for share in shares]


def _is_finer(wanted: Sequence[float], before: Sequence[float]) -> bool:
    """Return whether less reduction is wanted of some run.

    Blocks may have given that already. Then the next look is at the same tuples, with a part of
    delta of its own.
    """
    return any(now < then for now, then in zip(wanted, before, strict=True))
