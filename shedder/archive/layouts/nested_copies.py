"""Nested copies as blocks: what each copy has more than the next coarser one is a shell.

A tuple's place says in which shell it is, and places are independent of everything else, so given
their sizes the shells are a random partition of the run: the first shells in order, and a random
part of the next one, are a simple random sample of the run, as blocks in random order are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.archive.layouts.blocks import Block, Wanted
from shedder.archive.layouts.copies import places_of
from shedder.archive.metadata.catalog_entries import Run
from shedder.cql.sql.exact_query import POSITION
from shedder.errors import CorruptData


def shell_sizes(run: Run) -> list[int]:
    """Tuples of each shell, from the coarsest copy out to the rest of the run."""
    held = [*(copy.rows for copy in reversed(run.copies)), run.rows]
    return [size - inner for size, inner in zip(held, [0, *held], strict=False)]


def read_shells(
    read: Callable[[Run, Wanted], Iterator[Block]],
    run: Run,
    numbers: Sequence[int],
    wanted: Wanted,
    seed: int,
) -> Iterator[Block]:
    """Some successive shells of a run, out of the one copy that holds all of them.

    Args:
      read: reads the file of a run, or of a run's copy, as its block 0.
      run: with its copies.
      numbers: of shells, rising.
      wanted: which columns of them.
      seed: of the stream.

    Raises:
      CorruptData: the run's own file is damaged; a damaged copy is passed over.
    """
    reductions = [copy.reduction for copy in run.copies]
    outermost = len(reductions) - numbers[-1]
    source = run if outermost == 0 else run.of_copy(run.copies[outermost - 1])
    columns = tuple(dict.fromkeys((*wanted.columns, POSITION)))
    try:
        (block,) = read(source, replace(wanted, columns=columns))
    except CorruptData:
        if source is run:
            raise
        (block,) = read(run, replace(wanted, columns=columns))
    places = places_of(seed, block.table[POSITION].to_numpy())
    shells = len(reductions) - np.searchsorted(reductions, places, side="right")
    table = block.table.select(list(wanted.columns))
    for number in numbers:
        part = table.filter(pa.array(shells == number))
        size_bytes = block.bytes_read if number == numbers[0] else 0
        yield Block(run, number, shell_sizes(run)[number], part, size_bytes)
