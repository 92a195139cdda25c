"""Part of a run that a layout can read for a reduction: the next finer one that exists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shedder.archive.metadata.catalog_entries import Copy, Run
from shedder.errors import BadQuery


@dataclass(frozen=True, slots=True)
class ReadablePart:
    """A simple random sample of a run that can be read: blocks of its file, or a copy.

    copy: None: the run's own file is read.
    reduction: share that is left out; at most the wanted one. The reader drops the rest.
    """

    run: Run
    copy: Copy | None
    blocks: tuple[int, ...]
    reduction: float

    @property
    def source(self) -> Run:
        """The run, with the file that is read."""
        return self.run if self.copy is None else self.run.of_copy(self.copy)


def part_of(run: Run, reduction: float) -> ReadablePart:
    """The smallest part of a run that leaves out no more than a reduction.

    A run in blocks gives the smallest of them: they were dealt at random, so these are as good as
    any. Others give the coarsest copy that is fine enough and not empty, or else all of it.

    Raises:
      BadQuery: the reduction is not in [0, 1).
    """
    check_reduction(reduction)
    if run.is_dealt:
        small = run.small_blocks
        order = np.concatenate([small, np.arange(run.blocks - small.size)])
        held = np.cumsum(run.block_sizes[order])
        count = int(np.searchsorted(held, (1.0 - reduction) * run.rows - 1e-6)) + 1
        blocks = sorted(order[:count].tolist())
        return ReadablePart(run, None, tuple(blocks), 1.0 - float(held[count - 1]) / run.rows)
    fine = [copy for copy in run.copies if copy.reduction <= reduction and copy.rows]
    if not fine:
        return ReadablePart(run, None, (0,), 0.0)
    return ReadablePart(run, fine[-1], (0,), fine[-1].reduction)


def check_reduction(reduction: float) -> None:
    """Refuse what is no reduction.

    Raises:
      BadQuery: it is not in [0, 1); NaN is not, either.
    """
    if not 0 <= reduction < 1:
        raise BadQuery(f"a reduction is in [0, 1), not {reduction!r}")
