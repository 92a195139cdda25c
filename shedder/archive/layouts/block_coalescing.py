"""Small blocks that were read last, kept decoded: a look into many runs asks for the same few."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from shedder.archive.layouts.blocks import Block, Wanted
from shedder.archive.metadata.catalog_entries import Run

SMALL_ROWS: Final = 16_384  # A question reads as many rows of few runs as of many: so few of each.
SMALL_BYTES: Final = 16 << 20
_ENTRY_BYTES: Final = 1_024  # Of the objects that hold a block, roughly.

_Key = tuple[int, tuple[str, ...]]
"""Number of a block, columns."""

StoredBytes = Callable[[int], int]
"""What the wanted columns of the block of this number take in the file."""


@dataclass(slots=True)
class _OfRun:
    """Of the file with this checksum; size_bytes in memory. whole: by number, those of which all
    columns are held."""

    crc: int
    blocks: dict[_Key, Block] = field(default_factory=dict)
    whole: dict[int, Block] = field(default_factory=dict)
    size_bytes: int = 0


class SmallBlocks:
    """Blocks of dealt runs with few rows, as they were when they were read and verified.

    Those of the run that was not used for the longest time go first. Safe from any thread.
    """

    def __init__(self, size_bytes_max: int = SMALL_BYTES) -> None:
        """Keep up to so many bytes."""
        self._max = size_bytes_max
        self._held: OrderedDict[str, _OfRun] = OrderedDict()
        self._size = 0
        self._lock = threading.RLock()  # A snapshot may be collected, and forget, at any moment.

    @staticmethod
    def fit(run: Run, numbers: Sequence[int], wanted: Wanted) -> bool:
        """Return whether all of these blocks are small; a larger one opens its file anyway."""
        if not (run.is_dealt and wanted.is_whole):
            return False
        sizes = run.block_sizes
        return all(sizes[number] <= SMALL_ROWS for number in numbers)

    def find(
        self, run: Run, numbers: Sequence[int], wanted: Wanted, stored_bytes: StoredBytes
    ) -> list[Block] | None:
        """Blocks of a run by number, with the bytes that they have in the file; None: not all."""
        with self._lock:
            held = self._held.get(run.file)
            if held is None or held.crc != run.crc:
                return None
            self._held.move_to_end(run.file)
            found = []
            for number in numbers:
                block = held.blocks.get((number, wanted.columns))
                if block is None and (whole := held.whole.get(number)) is not None:
                    table = whole.table.select(list(wanted.columns))
                    block = replace(whole, table=table, bytes_read=stored_bytes(number))
                if block is None:
                    return None
                found.append(block)
            return found

    def hold_whole(self, block: Block) -> None:
        """Keep a block with all of its columns, for later requests for some of them."""
        with self._lock:
            held, table = self._of(block.run), _copied(block)
            if block.number not in held.whole:
                held.whole[block.number] = replace(block, table=table)
                self._grow(held, table)

    def keeping(
        self, wanted: Wanted, blocks: Iterator[Block], stored_bytes: StoredBytes
    ) -> Iterator[Block]:
        """Blocks of a run as they come, which are kept; stored_bytes: that one has in the file."""
        for block in blocks:
            self._keep(wanted, block, stored_bytes(block.number))
            yield block

    def forget(self, name: str) -> None:
        """Let go of the blocks of the file of this name below `runs/`."""
        with self._lock:
            evicted = self._held.pop(name, None)
            if evicted is not None:
                self._size -= evicted.size_bytes

    def _keep(self, wanted: Wanted, block: Block, stored_bytes: int) -> None:
        table = _copied(block)
        with self._lock:
            held, key = self._of(block.run), (block.number, wanted.columns)
            if key not in held.blocks:
                held.blocks[key] = replace(block, table=table, bytes_read=stored_bytes)
                self._grow(held, table)

    def _of(self, run: Run) -> _OfRun:
        held = self._held.get(run.file)
        if held is None or held.crc != run.crc:
            self.forget(run.file)
            held = self._held[run.file] = _OfRun(run.crc)
        return held

    def _grow(self, held: _OfRun, table: pa.Table) -> None:
        held.size_bytes += table.nbytes + _ENTRY_BYTES
        self._size += table.nbytes + _ENTRY_BYTES
        while self._size > self._max:
            self.forget(next(iter(self._held)))


def _copied(block: Block) -> pa.Table:
    """Its rows: of what was read together this alone is held."""
    return block.table.take(np.arange(block.rows))
