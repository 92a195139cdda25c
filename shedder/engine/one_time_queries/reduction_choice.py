"""Choice of the reduction of a one-time query, and of the tuples that it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from shedder.archive.layouts.blocks import Wanted
from shedder.archive.layouts.readable_part import ReadablePart, part_of
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.reductions.reduction import Surroundings
from shedder.archive.reductions.registry import UNTIL_ERROR, NamedReduction, reduction_of
from shedder.archive.sampling.block_sample import BlockSample
from shedder.archive.sampling.run_sample import ReadBlocks, SampledBlock
from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.expressions.expression import BY_TIME, Column, Expression, walk
from shedder.cql.statements.archive_layout import Lazy
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.engine.one_time_queries.archive_question import ArchiveQuestion
from shedder.engine.one_time_queries.progressive_scan import ProgressiveScan
from shedder.errors import BadQuery, CorruptData
from shedder.queries.one_time.plan import PlanStep, Source, TimeRange
from shedder.streams.extreme_rows import ExtremesView
from shedder.streams.live_sample import SampleView

THREADS: Final = min(4, os.cpu_count() or 1)


def reduction_for(
    query: BoundQuery, load: Callable[[], float], deadline: Deadline
) -> NamedReduction | None:
    """The reduction that a query names; `until_error()` for others with a target, else none.

    Raises:
      UnknownReduction, BadReduction. BadQuery: wrong arguments, or it needs a target.
      Cancelled, DeadlineExceeded: before it was made.
    """
    if query.reduction is None and query.target is None:
        return None
    clause = query.reduction or UNTIL_ERROR
    named = reduction_of(clause, Surroundings(query.schema, load), on_progress=deadline.check)
    if named.reads_on and query.target is None:
        raise BadQuery(
            f"REDUCE BY {named.text} reads until a target is met, and there is none: "
            "add WITHIN 1 PERCENT, say"
        )
    return named


def part_step(snapshot: Snapshot, reduction: NamedReduction | None) -> PlanStep | None:
    """The step that reads a stream in part; None where none is asked for, or no run allows it.

    Where runs or the log were damaged everything is read: that says what is missing.
    """
    if reduction is None or snapshot.missing or snapshot.holes:
        return None
    if all(_is_whole(run) for run in snapshot.runs):
        return None
    return PlanStep(Source.PART if reduction.reads_on else Source.REDUCED, reduction.text)


def extremes_beside(question: ArchiveQuestion, sample: SampleView | None) -> ExtremesView | None:
    """Return the extreme rows that a part of the archive can be read beside; None: there are none.

    They are those of the live sample, if it is of the same tuples. A large tail is a stratum of its
    own, and strata have no extreme rows.
    """
    snapshot = question.snapshot
    if sample is None or sample.extremes is None or sample.position != snapshot.end_position:
        return None
    if not all(_is_inside(run.low_us, run.high_us, question.stretch) for run in snapshot.runs):
        return None
    tail = sum(batch.num_rows for batch in snapshot.tail)
    population = tail + sum(run.rows for run in snapshot.runs)
    if population != sample.population or tail > BlockSample.TAIL_SHARE_MAX * population:
        return None
    return sample.extremes


def scan_of(
    question: ArchiveQuestion,
    reduction: NamedReduction,
    rng: np.random.Generator,
    extremes: ExtremesView | None = None,
) -> ProgressiveScan:
    """The scan that reads a stream in part, as a reduction says.

    Where tuples are deleted and not purged yet, they are read and left out as by a WHERE: what the
    catalog knows of columns is of all tuples.

    extremes: of all columns of the stream, see `extremes_beside`.
    """
    query, snapshot = question.query, question.snapshot
    stretch, deadline = question.stretch, question.deadline
    narrow = not all(_is_inside(run.low_us, run.high_us, stretch) for run in snapshot.runs)
    columns = columns_read(query, narrow=narrow)
    sample = BlockSample(
        query.schema,
        [(run, run.blocks) for run in snapshot.runs],
        [_inside(batch, query.schema.time_column, stretch) for batch in snapshot.tail],
        _reader(snapshot, query.schema, deadline),
        columns,
        rng,
        marked=bool(snapshot.deleted),
        threads=THREADS,
    )
    if extremes is not None:
        extremes = extremes.of_columns(columns, query.schema.time_column)
    return ProgressiveScan(
        query,
        sample,
        reduction,
        stretch,
        narrow,
        snapshot.end_position,
        deadline,
        rng,
        extremes=extremes,
    )


def dropped(scan: ProgressiveScan) -> list[tuple[ReadablePart, float]]:
    """Of each run of lazy layout that was asked about: what is read of it, what was wanted."""
    return [
        (part_of(each.run, requested), requested)
        for each, requested in zip(scan.sample.runs, scan.requested, strict=False)
        if isinstance(each.run.layout, Lazy)
    ]


def not_reduced(snapshot: Snapshot) -> str:
    """Return why REDUCE BY has no effect on a stretch."""
    runs = snapshot.runs
    blocks = sum(max(run.blocks, len(run.copies) + 1) for run in runs)
    if snapshot.missing or snapshot.holes:
        why = "some of it is damaged"
    elif not runs and not any(batch.num_rows for batch in snapshot.tail):
        return "REDUCE BY has no effect: no tuple of this stretch is stored"
    elif not runs:
        why = "none of it is in a run"
    elif all(_is_whole(run) for run in runs):
        why = f"no run of it lies in blocks or has a copy (runs: {len(runs):,})"
    elif any(isinstance(run.layout, Lazy) and not run.copies for run in runs):
        why = "the vacuum makes copies of lazy runs only of what questions have left out"
    else:
        why = f"no smaller part of it suffices (runs: {len(runs):,}, blocks: {blocks:,})"
    return f"REDUCE BY has no effect, all was read: {why}"


def _is_whole(run: Run) -> bool:
    """Return whether a run cannot be read in part, now or after a vacuum."""
    return run.blocks == 1 and not run.copies and not isinstance(run.layout, Lazy)


def _reader(snapshot: Snapshot, schema: StreamSchema, deadline: Deadline) -> ReadBlocks:
    def read(run: Run, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[SampledBlock]:
        wanted = Wanted(schema.time_column, tuple(columns))
        try:
            if run.copies:
                yield from snapshot.read_shells(run, numbers, wanted, schema.seed, deadline.check)
            else:
                yield from snapshot.read_blocks(run, numbers, wanted, deadline.check)
        except CorruptData:
            snapshot.files.distrust(run)
            raise

    return read


def columns_read(query: BoundQuery, *, narrow: bool) -> tuple[str, ...]:
    """The columns that an estimate needs: those of the query, and event times where they matter.

    narrow: whether rows must be filtered by event time.
    """
    by_time = any(aggregate.function in BY_TIME for aggregate in query.aggregates)
    if query.columns and not (narrow or by_time or _has_constant(query)):
        return query.columns
    return tuple(dict.fromkeys([*query.columns, query.schema.time_column]))


def _has_constant(query: BoundQuery) -> bool:
    """Return whether something is evaluated per tuple that no column is part of."""
    nodes: Sequence[Expression | None] = [
        *query.groups,
        query.where,
        *(part for each in query.aggregates for part in (each.argument, each.second)),
        *(part for each in query.aggregates for part in each.conditions),
    ]
    return any(
        node is not None and not any(isinstance(part, Column) for part in walk(node))
        for node in nodes
    )


def _is_inside(low_us: int, high_us: int, stretch: TimeRange) -> bool:
    return (stretch.start_us is None or stretch.start_us <= low_us) and (
        stretch.end_us is None or high_us < stretch.end_us
    )


def _inside(batch: pa.RecordBatch, time_column: str, stretch: TimeRange) -> pa.RecordBatch:
    """The rows of a batch with event times in the stretch."""
    times = batch.column(time_column).cast(pa.int64()).to_numpy()
    inside = np.ones(len(times), np.bool_)
    if stretch.start_us is not None:
        inside &= times >= stretch.start_us
    if stretch.end_us is not None:
        inside &= times < stretch.end_us
    return batch if inside.all() else batch.take(np.flatnonzero(inside))
