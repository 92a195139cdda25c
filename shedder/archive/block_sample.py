"""Simple random samples of runs, read block by block and never more than is needed.

A run's tuples were dealt at random into its blocks, so the tuples of any of them, in any order,
are a simple random sample of the run. To make one of *all* runs together, tuples are kept
independently with one probability p: how many that are in run i is binomial, and is drawn before
anything is read; then as many blocks are read as hold them, in random order, and of the last one
a random part is taken. Given how many came out, they are a simple random sample without
replacement of all tuples of all runs (whatever the sizes of runs and blocks), which is what every
interval of this house asks for. A larger p later adds to what was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.deadline import Deadline
from shedder.archive.entries import Run, Value
from shedder.archive.layouts.shells import shell_sizes
from shedder.cql.query import StreamSchema
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import arrow_schema
from shedder.streams.sample import SampleView

_DEVIATIONS: Final = 5.0  # Of a binomial: one run in 3 million needs one block more than planned.
_NEAR: Final = 0.98  # Of a wanted share, that blocks or a copy must hold: copies vary in size.
_FIT: Final = 0.8  # The smallest part of a wanted share that fitting to whole blocks may leave.


class Block(Protocol):
    """One block as it was read."""

    @property
    def table(self) -> pa.Table:
        """The wanted columns, all rows of the block."""

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the file for it."""


ReadBlocks = Callable[[Run, Sequence[int], Sequence[str]], Iterator[Block]]
"""Blocks of a run by number, one after the other, with these columns."""


@dataclass(slots=True)
class RunSample:
    """What was read of one run.

    order: its blocks as they will be read; held: how many tuples the first 1, 2 ... of them have.
    kept: tuples drawn.
    """

    run: Run
    order: NDArray[np.int64]
    held: NDArray[np.int64]
    seed: int
    share: float = 0.0
    kept: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    tables: list[pa.Table] = field(default_factory=list)

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return len(self.order)

    @property
    def blocks_read(self) -> int:
        """How many of them were read."""
        return len(self.tables)

    def draw(self, share: float, rng: np.random.Generator) -> None:
        """Keep tuples with a probability that only grows: those kept before stay."""
        if share <= self.share:
            return
        more = 1.0 if share >= 1.0 else (share - self.share) / (1.0 - self.share)
        self.kept += int(rng.binomial(self.run.rows - self.kept, more))
        self.share = share

    def read(self, read: ReadBlocks, columns: Sequence[str], deadline: Deadline) -> None:
        """Read until there are as many rows as were drawn."""
        while self.rows_read < self.kept:
            enough = int(np.searchsorted(self.held, self.kept)) + 1
            numbers = self.order[self.blocks_read : enough]
            assert len(numbers), (self.run.file, self.kept, self.rows_read)
            for block in read(self.run, numbers.tolist(), columns):
                deadline.check()
                self.tables.append(block.table)
                self.rows_read += block.table.num_rows
                self.bytes_read += block.bytes_read

    def rows(self) -> list[pa.Table]:
        """The tuples that were drawn: whole blocks, and a random part of the last one."""
        found, left = [], self.kept
        for number, table in enumerate(self.tables):
            if left <= 0:
                break
            if table.num_rows > left:
                chosen = np.random.default_rng([self.seed, number]).permutation(table.num_rows)
                table = table.take(np.sort(chosen[:left]))  # noqa: PLW2901
            found.append(table)
            left -= table.num_rows
        return found


class BlockSample:
    """Samples of runs that can be read in part, and all of the tail. Used by one thread.

    Runs that were given one share form one simple random sample; those of another share form
    another. A tail that is small beside them is thinned into the one sample that there is.
    """

    TAIL_SHARE_MAX: Final = 0.1

    def __init__(
        self,
        schema: StreamSchema,
        runs: Sequence[tuple[Run, int]],
        tail: Sequence[pa.RecordBatch],
        read: ReadBlocks,
        columns: Sequence[str],
        rng: np.random.Generator,
        *,
        threads: int = 1,
    ) -> None:
        """Nothing is read yet.

        Args:
          schema: of the stream.
          runs: with the number of their blocks; of a run with copies these are its shells.
          tail: the tuples that are in no run.
          read: how blocks are read; called by several threads, a run by one at a time.
          columns: those that are wanted.
          rng: what is drawn with.
          threads: that read.
        """
        self.schema = schema
        self.columns = tuple(columns)
        self.runs = [_unread(run, blocks, rng) for run, blocks in runs if run.rows]
        self._tail = [batch.select(list(columns)) for batch in tail if batch.num_rows]
        self._tail_basics = [_basics_of(batch, self.columns) for batch in self._tail]
        self._read = read
        self._rng = rng
        self._threads = threads

    @property
    def tail_rows(self) -> int:
        """Tuples in no run."""
        return sum(batch.num_rows for batch in self._tail)

    @property
    def run_rows(self) -> int:
        """Tuples in runs."""
        return sum(each.run.rows for each in self.runs)

    @property
    def population(self) -> int:
        """All tuples."""
        return self.run_rows + self.tail_rows

    @property
    def rows_kept(self) -> int:
        """Tuples that the samples hold, of runs."""
        return sum(each.kept for each in self.runs)

    @property
    def rows_read(self) -> int:
        """Tuples that were read from runs."""
        return sum(each.rows_read for each in self.runs)

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from files."""
        return sum(each.bytes_read for each in self.runs)

    def fitted(self, shares: Sequence[float]) -> list[float]:
        """Shares that fit whole blocks, one per run: of each wanted share, what its blocks give.

        A share is taken up to the next number of blocks, and then down by as much as keeps the
        binomial draw inside them; where that would cost too much it stays as it is, and a run
        that draws more reads one block more.
        """
        fitting: dict[float, float] = {}
        for share, each in zip(shares, self.runs, strict=True):
            near = share if share >= 1.0 else _NEAR * share
            wanted = int(np.searchsorted(each.held, near * each.run.rows - 1e-6))
            if wanted < each.blocks - 1:
                whole = float(each.held[wanted]) / each.run.rows
                slack = _DEVIATIONS * math.sqrt(whole * (1.0 - whole) / each.run.rows)
                fitting[share] = min(fitting.get(share, 1.0), whole - slack)
        found = {s: (fit if fit >= _FIT * s else s) for s, fit in fitting.items()}
        return [found.get(share, 1.0) for share in shares]

    def extend(self, shares: Sequence[float], deadline: Deadline) -> None:
        """Read on until every run is sampled at its share; a share that is lower changes nothing.

        Raises:
          Cancelled, DeadlineExceeded: by the deadline. CorruptData: a file is damaged.
        """
        for share, each in zip(shares, self.runs, strict=True):
            each.draw(share, self._rng)
        due = [each for each in self.runs if each.rows_read < each.kept]
        if self._threads == 1 or len(due) < 2:
            for each in due:
                each.read(self._read, self.columns, deadline)
                self._report(deadline)
            return
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shedder-blocks")
        try:
            reading = [pool.submit(each.read, self._read, self.columns, deadline) for each in due]
            for future in reading:
                future.result()
                self._report(deadline)
        finally:
            pool.shutdown(cancel_futures=True)

    def _report(self, deadline: Deadline) -> None:
        deadline.progress.total = sum(each.kept for each in self.runs)
        deadline.progress.done = sum(min(each.kept, each.rows_read) for each in self.runs)

    def views(self) -> list[SampleView]:
        """One sample per share at which runs were read, and one of the tail, if there is any."""
        classes: dict[float, list[RunSample]] = {}
        for each in self.runs:
            classes.setdefault(each.share, []).append(each)
        if len(classes) == 1 and self.tail_rows <= self.TAIL_SHARE_MAX * self.population:
            [(share, runs)] = classes.items()
            return [self._view(runs, share)]
        views = [self._view(runs, None) for _, runs in sorted(classes.items())]
        if self._tail or not views:
            views.append(self._view([], 1.0))
        return views

    def _view(self, runs: Sequence[RunSample], tail_share: float | None) -> SampleView:
        """A sample of runs, and of the tail unless its share is None."""
        tables = [table for each in runs for table in each.rows()]
        basics = [_basics_in(each.run, self.columns) for each in runs]
        population = sum(each.run.rows for each in runs)
        if tail_share is not None and self._tail:
            tables.append(self._thinned_tail(tail_share))
            basics += self._tail_basics
            population += self.tail_rows
        empty = pa.Table.from_batches([], _schema_of(self.schema, self.columns))
        whole = pa.concat_tables([empty, *tables]).combine_chunks()
        [batch] = whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)]
        known: list[Mapping[str, ColumnBasics]] = [
            {name: ColumnBasics() for name in self.columns},
            *basics,
        ]
        return SampleView(
            self.schema,
            0,
            population,
            batch,
            reduce(_merged, known),
            weighted={},
            hashed={},
        )

    def _thinned_tail(self, share: float) -> pa.Table:
        table = pa.Table.from_batches(self._tail)
        if share >= 1.0:
            return table
        rows = np.flatnonzero(self._rng.random(table.num_rows) < share)
        return table.take(rows)


def _unread(run: Run, blocks: int, rng: np.random.Generator) -> RunSample:
    """A run of which nothing is read: shells from the inside out, or blocks, the small ones first.

    Equal ones are in random order. Sizes say nothing of what is in a block.
    """
    if run.copies:
        sizes = np.array(shell_sizes(run))
        order = np.arange(sizes.size)
    else:
        small = run.small_blocks
        order = np.concatenate([small, rng.permutation(blocks - small.size)])
        sizes = run.block_sizes[order]
    return RunSample(run, order, np.cumsum(sizes), int(rng.integers(1 << 62)))


def _schema_of(schema: StreamSchema, columns: Sequence[str]) -> pa.Schema:
    whole = arrow_schema(schema)
    return pa.schema([whole.field(name) for name in columns])


def _basics_of(batch: pa.RecordBatch, columns: Sequence[str]) -> Mapping[str, ColumnBasics]:
    return {name: ColumnBasics.of(batch.column(name)) for name in columns}


def _basics_in(run: Run, columns: Sequence[str]) -> Mapping[str, ColumnBasics]:
    """What the catalog knows of a run, in the words of samples."""
    found = {}
    for name in columns:
        known = run.basics[name]
        low, high = (_number(end) for end in (known.low, known.high))
        found[name] = ColumnBasics(run.rows - known.nulls, known.nulls, low, high)
    return found


def _number(end: Value) -> int | float | None:
    """Booleans as 0 and 1; of text nothing."""
    if isinstance(end, bool):
        return int(end)
    return None if isinstance(end, str) else end


def _merged(
    left: Mapping[str, ColumnBasics], right: Mapping[str, ColumnBasics]
) -> Mapping[str, ColumnBasics]:
    return {name: basics.merged(right[name]) for name, basics in left.items()}
