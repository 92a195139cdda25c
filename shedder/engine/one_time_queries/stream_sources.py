"""Sources of one one-time query: what a stream has at one moment, and how its archive is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shedder.archive.layouts.readable_part import ReadablePart
from shedder.archive.reductions.registry import NamedReduction
from shedder.archive.store.snapshot import Snapshot
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.exact_reader import ExactReader, exact_step, is_soonest
from shedder.engine.one_time_queries.progressive_scan import ProgressiveScan
from shedder.engine.one_time_queries.reduction_choice import (
    dropped,
    extremes_beside,
    not_reduced,
    part_step,
    scan_of,
)
from shedder.errors import CorruptData
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.one_time.plan import KnownSources, ScanEstimate
from shedder.streams.live_sample import SampleView


class StreamSources:
    """What the executor of a plan reads. Of one question."""

    def __init__(
        self,
        question: ArchiveQuestion,
        sample: SampleView | None,
        reduction: NamedReduction | None,
        reader: ExactReader,
        rng: np.random.Generator,
    ) -> None:
        """Look up what is known; no tuple is read.

        sample: of all tuples of the stretch; None: the sample lacks some of them.
        rng: draws the part that is read.
        """
        self._question = question
        self._reduction = reduction
        self._reader = reader
        self._rng = rng
        self._way = reader.way(question)
        self._extremes = extremes_beside(question, sample)
        self._scan: ProgressiveScan | None = None
        self.known = KnownSources(
            exact_step(question, self._way),
            is_soonest(question, self._way),
            part_step(question.snapshot, reduction),
            sample,
            question.stretch,
            _size_text(question.snapshot),
            self._extremes is not None,
        )

    def part(self, before: ScanEstimate | None) -> ScanEstimate | None:
        """As `ArchiveReader.part`."""
        assert self._reduction is not None
        self._scan = scan_of(self._question, self._reduction, self._rng, self._extremes)
        try:
            return self._scan.read(before)
        except CorruptData:
            return None

    def exact(self) -> Evidence:
        """As `ArchiveReader.exact`."""
        evidence = self._reader.read(self._question, self._way)
        has_read_part = self._scan is not None and self._scan.sample.rows_read > 0
        if self._question.query.reduction is None or self.known.is_soonest or has_read_part:
            return evidence
        return replace(evidence, notes=(*evidence.notes, not_reduced(self._question.snapshot)))

    def dropped(self) -> list[tuple[ReadablePart, float]]:
        """What a scan in part has left out of lazy runs."""
        return [] if self._scan is None else dropped(self._scan)


def _size_text(snapshot: Snapshot) -> str:
    runs = sum(run.rows for run in snapshot.runs)
    tail = sum(batch.num_rows for batch in snapshot.tail)
    blocks = sum(run.blocks + len(run.copies) for run in snapshot.runs)
    return f"{runs:,} tuples in {len(snapshot.runs)} runs of {blocks:,} blocks, {tail:,} in the log"
