"""Sample of one run: the blocks to read, and the rows of the last one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from shedder.archive.layouts.nested_copies import shell_sizes
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.tasks.deadline import Deadline
from synopses.samples.random_partition import left_out

_BLOCK_ROWS: Final = 2_000  # To read one block more takes as long as about as many rows.


class SampledBlock(Protocol):
    """One block as it was read."""

    @property
    def table(self) -> pa.Table:
        """The wanted columns, all rows of the block."""

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the file for it."""


ReadBlocks = Callable[[Run, Sequence[int], Sequence[str]], Iterator[SampledBlock]]
"""Blocks of a run by number, one after the other, with these columns."""


@dataclass(slots=True)
class RunSample:
    """What was read of one run. There may be many runs, and little is read of each: so lists.

    rows: tuples in the run. unread: its blocks that were not read, small ones first and by size,
    others in random order; sizes: tuples in each. copied: of a run with copies, by the share that
    each was drawn with, coarsest first, how many it holds; then blocks are read in this order.
    kept: tuples drawn. due: blocks that hold them, to be read next. key: of the random order in
    which rows of the last block that was read are left out, as many as are too many.
    """

    run: Run
    rows: int
    unread: list[int]
    sizes: list[int]
    copied: Mapping[float, int] = field(default_factory=dict)
    share: float = 0.0
    kept: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    tables: list[pa.Table] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    key: int = 0

    @property
    def nested(self) -> bool:
        """Return whether blocks can only be read in order, from a coarse copy out."""
        return bool(self.copied)

    @property
    def blocks_read(self) -> int:
        """Return how many of its blocks were read."""
        return len(self.tables)

    @property
    def blocks(self) -> int:
        """Return how many it has."""
        return self.blocks_read + len(self.unread)

    @property
    def extra(self) -> int:
        """Return how many rows of the last block that was read were not drawn."""
        return self.rows_read - self.kept

    def draw(self, share: float, rng: np.random.Generator) -> None:
        """Keep tuples with a probability that only grows: those kept before stay.

        Those of a copy were kept with its share, each independently: no draw is needed for that.
        """
        if share <= self.share:
            return
        if share in self.copied and (self.share == 0.0 or self.share in self.copied):
            self.kept, self.share = self.copied[share], share
            return
        more = 1.0 if share >= 1.0 else (share - self.share) / (1.0 - self.share)
        self.kept += int(rng.binomial(self.rows - self.kept, more))
        self.share = share

    def ahead(self, wanted: int) -> int:
        """Return how many tuples are read when so many more are wanted."""
        return sum(self.sizes[at] for at in self._next(wanted))

    def choose(self, key: int) -> None:
        """Say which blocks are read for the tuples that were drawn; key: 64 random bits.

        How many tuples each block has is known, so nothing that is read has a say in it.
        """
        chosen = self._next(self.kept - self.rows_read)
        if not chosen:
            return
        self.due = [self.unread[at] for at in chosen]
        self.key = key
        for at in sorted(chosen, reverse=True):
            del self.unread[at], self.sizes[at]

    def read(self, read: ReadBlocks, columns: Sequence[str], deadline: Deadline) -> None:
        """Read the blocks that are due."""
        due, self.due = self.due, []
        for block in read(self.run, due, columns):
            deadline.check()
            self.tables.append(block.table)
            self.rows_read += block.table.num_rows
            self.bytes_read += block.bytes_read
        assert self.rows_read >= self.kept, (self.run.file, self.kept, self.rows_read)

    def _next(self, wanted: int) -> list[int]:
        """Return the blocks to read for more rows; the last block may have too many."""
        if wanted <= 0:
            return []
        if self.nested:
            return list(range(bisect_left(list(accumulate(self.sizes)), wanted) + 1))
        return fewest(self.sizes, wanted)


def fewest(sizes: Sequence[int], wanted: int) -> list[int]:
    """Blocks that hold as many rows as are wanted: little more than these, and few blocks.

    Args:
      sizes: of blocks, rising. wanted: rows, at least 1, no more than all have together.

    Returns:
      places in sizes: the largest first as long as all of each is needed; the last one covers
      the rest.
    """
    taken: list[int] = []
    best, least = taken, math.inf
    end, left = len(sizes), wanted
    while end:
        cover = bisect_left(sizes, left, 0, end)
        if cover < end:
            cost = sizes[cover] - left + _BLOCK_ROWS * len(taken)
            if cost < least:
                best, least = [*taken, cover], cost
        if not cover:
            break
        end = cover - 1  # The largest that is needed in full.
        taken.append(end)
        left -= sizes[end]
    assert best, (wanted, sizes)
    return best


def unread_runs(runs: Sequence[tuple[Run, int]], rng: np.random.Generator) -> list[RunSample]:
    """Runs of which nothing is read, each with the number of its blocks.

    Of a run with copies there are shells from the inside out, of others blocks by size, equal ones
    in random order. Sizes say nothing of what is in a block.
    """
    found: dict[int, RunSample] = {}
    alike: dict[tuple[int, ...], list[int]] = {}  # Most of a stream's runs are.
    for at, (run, blocks) in enumerate(runs):
        if run.copies:
            sizes = shell_sizes(run)
            copied = {1.0 - copy.reduction: copy.rows for copy in reversed(run.copies)}
            found[at] = RunSample(run, run.rows, list(range(len(sizes))), sizes, copied)
        else:
            alike.setdefault((blocks, *run.block_sizes.tolist()), []).append(at)
    for (blocks, *sizes), places in alike.items():
        order = rng.permuted(np.tile(np.arange(blocks), (len(places), 1)), axis=1)
        by_size = np.argsort(np.array(sizes)[order], axis=1, kind="stable")
        numbers = np.take_along_axis(order, by_size, axis=1).tolist()
        for at, unread in zip(places, numbers, strict=True):
            run = runs[at][0]
            found[at] = RunSample(run, run.rows, unread, sorted(sizes))
    return [found[at] for at in range(len(runs))]


def drawn(runs: Sequence[RunSample]) -> list[pa.Table]:
    """The tuples that were drawn: whole blocks, and a random part of the last one of each run."""
    whole: list[pa.Table] = []
    cut = [each for each in runs if each.extra]
    for each in runs:
        whole += each.tables[:-1] if each.extra else each.tables
    if cut:  # In one call: there may be many runs, and little of each.
        last = [each.tables[-1] for each in cut]
        gone = left_out(
            np.array([each.key for each in cut], np.uint64),
            np.array([table.num_rows for table in last]),
            np.array([each.extra for each in cut]),
        )
        whole.append(pa.concat_tables(last).filter(pa.array(~gone)))
    return whole
