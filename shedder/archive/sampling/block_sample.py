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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa

from shedder.archive.metadata.catalog_entries import Run, Value
from shedder.archive.sampling.run_sample import ReadBlocks, RunSample, drawn, unread_runs
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.sql.exact_query import LIVE
from shedder.cql.statements.bound_query import StreamSchema
from shedder.streams.basics import ColumnBasics
from shedder.streams.batches import arrow_schema
from shedder.streams.live_sample import SampleView

_DEVIATIONS: Final = 5.0  # Of a binomial: one run in 3 million needs one block more than planned.
_NEAR: Final = 0.98  # Of a wanted share, that blocks or a copy must hold: copies vary in size.
_TASKS: Final = 8  # Tasks per thread: a thread that is done early takes over few of another's.
_ASIDE_ROWS: Final = 50_000  # Of one run; where fewer are read, threads only wait for each other.
_FIT: Final = 0.8  # The smallest part of a wanted share that fitting to whole blocks may leave.


class BlockSample:
    """Samples of runs that can be read in part, and all of the tail. Used by one thread.

    Runs that were given one share form one simple random sample; those of another share form
    another. A tail that is small beside them is thinned into the one sample that there is.
    run_rows: tuples in runs.
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
        marked: bool = False,
        threads: int = 1,
    ) -> None:
        """Nothing is read yet.

        Args:
          schema: of the stream.
          runs: with the number of their blocks; of a run with copies these are its shells.
          tail: the tuples that are in no run.
          read: how blocks are read; called by several threads, a run by one at a time.
          columns: those that are wanted.
          marked: whether rows of runs may be deleted; then the samples hold them, too, with the
            column LIVE that tells them apart, and are simple random samples of both.
          rng: what is drawn with.
          threads: that read.
        """
        self.schema = schema
        self.columns = tuple(columns)
        self.marked = marked
        self.runs = unread_runs([each for each in runs if each[0].rows], rng)
        self.run_rows = sum(each.rows for each in self.runs)
        self._tail = [batch.select(list(columns)) for batch in tail if batch.num_rows]
        self._tail_basics = [_basics_of(batch, self.columns) for batch in self._tail]
        if marked:
            self._tail = [_all_live(batch) for batch in self._tail]
        self._run_basics: Mapping[str, ColumnBasics] | None = None
        self._read = read
        self._rng = rng
        self._shuffle_seed = 0
        self._threads = threads

    @property
    def tail_rows(self) -> int:
        """Tuples in no run."""
        return sum(batch.num_rows for batch in self._tail)

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

    def fitted(self, shares: Sequence[float], *, at_least: bool = False) -> list[float]:
        """Shares that fit whole blocks, one per run: of each wanted share, what its blocks give.

        A share is taken up to the next number of blocks, and then down by as much as keeps the
        binomial draw inside them; where that would cost too much it stays as it is, and a run
        that draws more reads one block more. Of runs with copies it is a copy's.

        at_least: no less than is wanted.
        """
        fitting: dict[float, float] = {}
        alike: dict[tuple[int, ...], int] = {}  # Runs of one size, read as far, are many.
        for share, each in zip(shares, self.runs, strict=True):
            near = share if share >= 1.0 else _NEAR * share
            if each.nested:
                least = share if at_least else near
                fine = (held for held, rows in each.copied.items() if rows and held >= least)
                fitting[share] = min(fitting.get(share, 1.0), next(fine, 1.0))
                continue
            wanted = math.ceil(near * each.rows - 1e-6) - each.rows_read
            of = wanted, *each.sizes
            if of not in alike:
                alike[of] = each.ahead(wanted)
            held = each.rows_read + alike[of]
            if held < each.rows:
                whole = held / each.rows
                slack = _DEVIATIONS * math.sqrt(whole * (1.0 - whole) / each.rows)
                fit = max(whole - slack, share) if at_least else whole - slack
                fitting[share] = min(fitting.get(share, 1.0), fit)
        found = {s: (fit if fit >= _FIT * s else s) for s, fit in fitting.items()}
        return [found.get(share, 1.0) for share in shares]

    def extend(self, shares: Sequence[float], deadline: Deadline, planned: int = 0) -> None:
        """Read on until every run is sampled at its share; a share that is lower changes nothing.

        planned: tuples that the samples hold after later calls, if more: to tell how far it is.

        Raises:
          Cancelled, DeadlineExceeded: by the deadline. CorruptData: a file is damaged.
        """
        for share, each in zip(shares, self.runs, strict=True):
            each.draw(share, self._rng)
        due = [each for each in self.runs if each.rows_read < each.kept]
        keys = self._rng.integers(0, 1 << 64, len(due), np.uint64)
        self._shuffle_seed ^= int(np.bitwise_xor.reduce(keys))
        for each, key in zip(due, keys.tolist(), strict=True):
            each.choose(key)
        progress = deadline.progress
        progress.expect(max(self.rows_kept, planned))
        progress.reach(sum(min(each.kept, each.rows_read) for each in self.runs))
        rows = sum(each.kept - each.rows_read for each in due)
        if self._threads == 1 or len(due) < 2 or rows < _ASIDE_ROWS * len(due):
            progress.reach(progress.done + self._read_some(due, deadline))
            return
        size = max(1, len(due) // (_TASKS * self._threads))
        parts = [due[at : at + size] for at in range(0, len(due), size)]
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shedder-blocks")
        try:
            reading = [pool.submit(self._read_some, part, deadline) for part in parts]
            for future in reading:
                progress.reach(progress.done + future.result())
        except KeyboardInterrupt:  # Of this thread alone; the others look at the progress.
            progress.cancel()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_some(self, due: Sequence[RunSample], deadline: Deadline) -> int:
        """Read what is due of runs; how many more tuples the sample has then."""
        more = 0
        columns = (*self.columns, LIVE) if self.marked else self.columns
        for each in due:
            before = each.rows_read
            each.read(self._read, columns, deadline)
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
        tables = drawn(runs)
        basics = [self._basics_of(runs)]
        population = sum(each.rows for each in runs)
        if tail_share is not None and self._tail:
            tables.append(self._thinned_tail(tail_share))
            basics += self._tail_basics
            population += self.tail_rows
        empty = pa.Table.from_batches([], self._arrow_schema())
        whole = pa.concat_tables([empty, *tables]).combine_chunks()
        [batch] = whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)]
        return SampleView(
            self.schema,
            0,
            population,
            batch,
            reduce(_merged, basics),
            weighted={},
            hashed={},
            shuffle_seed=self._shuffle_seed,
        )

    def _arrow_schema(self) -> pa.Schema:
        whole = arrow_schema(self.schema)
        fields = [whole.field(name) for name in self.columns]
        return pa.schema([*fields, pa.field(LIVE, pa.bool_())] if self.marked else fields)

    def _basics_of(self, runs: Sequence[RunSample]) -> Mapping[str, ColumnBasics]:
        """What the catalog knows of some runs; of all of them it is asked at each look."""
        if len(runs) == len(self.runs) and self._run_basics is not None:
            return self._run_basics
        found: Mapping[str, ColumnBasics] = {name: ColumnBasics() for name in self.columns}
        found = reduce(_merged, (_basics_in(each.run, self.columns) for each in runs), found)
        if len(runs) == len(self.runs):
            self._run_basics = found
        return found

    def _thinned_tail(self, share: float) -> pa.Table:
        table = pa.Table.from_batches(self._tail)
        if share >= 1.0:
            return table
        rows = np.flatnonzero(self._rng.random(table.num_rows) < share)
        return table.take(rows)


def _all_live(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A part of the tail: what was deleted of it was put into a run before."""
    return batch.append_column(LIVE, pa.array(np.ones(batch.num_rows, np.bool_)))


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
