"""Simple random samples of runs, read block by block and never more than is needed.

A run's tuples were dealt at random into its blocks, so the tuples of any of them, in any order,
are a simple random sample of the run. To make one of *all* runs together, tuples are kept
independently with one probability p: how many that are in run i is binomial, and is drawn before
anything is read; then as few blocks are read as hold them, chosen by size and otherwise at random,
and of the last one a random part is taken. Given how many came out, they are a simple random
sample without replacement of all tuples of all runs (whatever the sizes of runs and blocks), which
is what every interval of this house asks for. A larger p later adds to what was read.
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
_BLOCK_ROWS: Final = 2_000  # To read one block more takes as long as about as many rows.
_TASKS: Final = 8  # Per thread: who is done early takes from the others, and few are handed over.
_ASIDE_ROWS: Final = 50_000  # Of one run; where fewer are read, threads only wait for each other.
_FIT: Final = 0.8  # The smallest part of a wanted share that fitting to whole blocks may leave.


class Block(Protocol):
    """One block as it was read."""

    @property
    def table(self) -> pa.Table:
        """The wanted columns, all rows of the block."""

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the file for it."""


_NONE: Final = np.zeros(0, np.int64)

ReadBlocks = Callable[[Run, Sequence[int], Sequence[str]], Iterator[Block]]
"""Blocks of a run by number, one after the other, with these columns."""


@dataclass(slots=True)
class RunSample:
    """What was read of one run.

    unread: its blocks that were not, small ones first and by size, others in random order; sizes:
    tuples in each. nested: they can only be read in this order. kept: tuples drawn. due: blocks
    that hold them, to be read next. spare: rows of the last block that was read, in random order:
    as many of them as are too many are left out.
    """

    run: Run
    unread: NDArray[np.int64]
    sizes: NDArray[np.int64]
    nested: bool
    share: float = 0.0
    kept: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    tables: list[pa.Table] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    spare: NDArray[np.int64] = field(default_factory=lambda: _NONE)

    @property
    def blocks_read(self) -> int:
        """How many of its blocks were read."""
        return len(self.tables)

    @property
    def blocks(self) -> int:
        """How many it has."""
        return self.blocks_read + len(self.unread)

    def draw(self, share: float, rng: np.random.Generator) -> None:
        """Keep tuples with a probability that only grows: those kept before stay."""
        if share <= self.share:
            return
        more = 1.0 if share >= 1.0 else (share - self.share) / (1.0 - self.share)
        self.kept += int(rng.binomial(self.run.rows - self.kept, more))
        self.share = share

    def ahead(self, wanted: int) -> int:
        """How many tuples are read when so many more are wanted."""
        return int(self.sizes[self._next(wanted)].sum())

    def choose(self, rng: np.random.Generator) -> None:
        """Say which blocks are read for the tuples that were drawn, and what of the last is spare.

        How many tuples each block has is known, so nothing that is read has a say in it.
        """
        chosen = self._next(self.kept - self.rows_read)
        if not len(chosen):
            return
        self.due = self.unread[chosen].tolist()
        sizes = self.sizes[chosen]
        extra = self.rows_read + int(sizes.sum()) - self.kept
        self.spare = rng.choice(int(sizes[-1]), extra, replace=False)
        left = np.ones(len(self.unread), np.bool_)
        left[chosen] = False
        self.unread, self.sizes = self.unread[left], self.sizes[left]

    def read(self, read: ReadBlocks, columns: Sequence[str], deadline: Deadline) -> None:
        """Read the blocks that are due."""
        due, self.due = self.due, []
        for block in read(self.run, due, columns):
            deadline.check()
            self.tables.append(block.table)
            self.rows_read += block.table.num_rows
            self.bytes_read += block.bytes_read
        assert self.rows_read >= self.kept, (self.run.file, self.kept, self.rows_read)

    def drawn(self) -> tuple[list[pa.Table], NDArray[np.bool_] | None]:
        """The blocks that were read, and which rows of the last one were drawn; None: all."""
        extra = self.rows_read - self.kept
        if not extra:
            return self.tables, None
        kept = np.ones(self.tables[-1].num_rows, np.bool_)
        kept[self.spare[:extra]] = False
        return self.tables, kept

    def _next(self, wanted: int) -> NDArray[np.int64]:
        """Which blocks to read for so many more rows; of the last one some may be too many."""
        if wanted <= 0:
            return _NONE
        if self.nested:
            return np.arange(int(np.searchsorted(np.cumsum(self.sizes), wanted)) + 1)
        return fewest(self.sizes, wanted)


def fewest(sizes: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """Blocks that hold as many rows as are wanted: little more than these, and few blocks.

    Args:
      sizes: int64 [blocks], rising. wanted: rows, at least 1, no more than all have together.

    Returns:
      places in sizes: the largest first as long as all of each is needed; the last one covers
      the rest.
    """
    assert 1 <= wanted <= sizes.sum(), (wanted, sizes)
    taken: list[int] = []
    best, least = taken, math.inf
    end, left = len(sizes), wanted
    while end:
        cover = int(np.searchsorted(sizes[:end], left))
        if cover < end:
            cost = int(sizes[cover]) - left + _BLOCK_ROWS * len(taken)
            if cost < least:
                best, least = [*taken, cover], cost
        if not cover:
            break
        end = cover - 1  # The largest that is needed in full.
        taken.append(end)
        left -= int(sizes[end])
    return np.array(best, np.int64)


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
        alike: dict[tuple[int, bytes], int] = {}  # Runs of one size, read as far, are many.
        for share, each in zip(shares, self.runs, strict=True):
            near = share if share >= 1.0 else _NEAR * share
            wanted = math.ceil(near * each.run.rows - 1e-6) - each.rows_read
            of = wanted, each.sizes.tobytes()
            if of not in alike:
                alike[of] = each.ahead(wanted)
            held = each.rows_read + alike[of]
            if held < each.run.rows:
                whole = held / each.run.rows
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
        for each in due:
            each.choose(self._rng)
        deadline.progress.total = self.rows_kept
        deadline.progress.done = sum(min(each.kept, each.rows_read) for each in self.runs)
        rows = sum(each.kept - each.rows_read for each in due)
        if self._threads == 1 or len(due) < 2 or rows < _ASIDE_ROWS * len(due):
            deadline.progress.done += self._read_some(due, deadline)
            return
        size = max(1, len(due) // (_TASKS * self._threads))
        parts = [due[at : at + size] for at in range(0, len(due), size)]
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shedder-blocks")
        try:
            reading = [pool.submit(self._read_some, part, deadline) for part in parts]
            for future in reading:
                deadline.progress.done += future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_some(self, due: Sequence[RunSample], deadline: Deadline) -> int:
        """Read what is due of runs; how many more tuples the sample has then."""
        more = 0
        for each in due:
            before = each.rows_read
            each.read(self._read, self.columns, deadline)
            more += each.kept - before
        return more

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
        tables = _drawn(runs)
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


def _drawn(runs: Sequence[RunSample]) -> list[pa.Table]:
    """The tuples that were drawn: whole blocks, and a random part of the last one of each run."""
    whole: list[pa.Table] = []
    last: list[pa.Table] = []
    kept: list[NDArray[np.bool_]] = []
    for each in runs:
        tables, mask = each.drawn()
        if mask is None:
            whole += tables
        else:
            whole += tables[:-1]
            last.append(tables[-1])
            kept.append(mask)
    if last:  # In one call: there may be many runs, and little of each.
        whole.append(pa.concat_tables(last).filter(pa.array(np.concatenate(kept))))
    return whole


def _unread(run: Run, blocks: int, rng: np.random.Generator) -> RunSample:
    """A run of which nothing is read: shells from the inside out, or blocks by size.

    Equal ones are in random order. Sizes say nothing of what is in a block.
    """
    if run.copies:
        sizes = np.array(shell_sizes(run))
        return RunSample(run, np.arange(sizes.size), sizes, nested=True)
    order = rng.permutation(blocks)
    sizes = run.block_sizes[order]
    by_size = np.argsort(sizes, kind="stable")
    return RunSample(run, order[by_size], sizes[by_size], nested=False)


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
