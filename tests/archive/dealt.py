"""Runs whose tuples are dealt into blocks, in memory: exchangeable blocks as in the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shedder.archive.encoding.parquet_encoding import basics_of
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.sampling.block_sample import BlockSample
from shedder.cql.statements.bound_query import StreamSchema


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block in memory; its bytes are those of its columns."""

    table: pa.Table

    @property
    def bytes_read(self) -> int:
        return self.table.nbytes


class DealtRuns:
    """A stream's tuples in runs of given sizes, each dealt into blocks, the last of which
    may be divided; the rest is its tail."""

    def __init__(
        self,
        schema: StreamSchema,
        data: pa.RecordBatch,
        sizes: Sequence[int],
        blocks: int,
        seed: int,
        halvings: int = 0,
    ) -> None:
        self.schema, self.data = schema, data
        self._tables: dict[str, pa.Table] = {}
        self.runs: list[tuple[Run, int]] = []
        first = 0
        for size in sizes:
            self._add(first, pa.Table.from_batches([data.slice(first, size)]), blocks, halvings)
            first += size
        self.tail = [data.slice(first)] if first < data.num_rows else []
        self.deal(seed)

    def _add(self, first: int, table: pa.Table, blocks: int, halvings: int) -> None:
        count = max(1, min(blocks, table.num_rows))
        times = table[self.schema.time_column].cast(pa.int64()).to_numpy()
        run = Run(
            stream_id=1,
            first_position=first,
            end_position=first + table.num_rows,
            file=f"1/{first}",
            size_bytes=table.nbytes,
            crc=0,
            low_us=int(times.min()),
            high_us=int(times.max()),
            layout=self.schema.layout,
            basics=basics_of(table),
            blocks=count + halvings,
            halvings=halvings,
        )
        self._tables[run.file] = table
        self.runs.append((run, run.blocks))

    def deal(self, seed: int) -> None:
        """Deal the same tuples anew."""
        rng = np.random.default_rng(seed)
        self.blocks_read: list[tuple[str, int]] = []
        self._parts = {
            run.file: np.split(rng.permutation(run.rows), np.cumsum(run.block_sizes)[:-1])
            for run, _ in self.runs
        }

    def read(self, run: Run, blocks: Sequence[int], columns: Sequence[str]) -> Iterator[HeldBlock]:
        """Blocks of a run, as `BlockSample` reads them."""
        for block in blocks:
            self.blocks_read.append((run.file, block))
            part = np.sort(self._parts[run.file][block])
            yield HeldBlock(self._tables[run.file].select(list(columns)).take(pa.array(part)))

    def sample(self, columns: Sequence[str], seed: int, threads: int = 1) -> BlockSample:
        """A sample of the runs, with all columns that are asked for."""
        rng = np.random.default_rng([seed, 77])
        return BlockSample(
            self.schema, self.runs, self.tail, self.read, columns, rng, threads=threads
        )
