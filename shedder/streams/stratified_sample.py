"""A stratified sample of a stream: rows by group, so that small groups are known as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column
from shedder.cql.statements.bound_query import StreamSchema
from shedder.streams.batches import arrow_schema
from shedder.streams.frame import Frame
from shedder.streams.group_keys import OTHERS, GroupKeys
from shedder.streams.row_sizes import CUT_SHARE, fixed_bytes, row_bytes
from shedder.streams.sample_payload import KeptRows
from synopses.kernels.grouped_arrays import grown
from synopses.kernels.hashing import position_start
from synopses.moments.moments import GroupedMoments
from synopses.samples.stratified_sample import StratifiedBottomK

ROWS_PER_STRATUM: Final = 32  # With fewer for each, groups that come later share one stratum.
ROWS_PER_STRATUM_MIN: Final = 16  # A sample with fewer rows for each stratum is dropped.
KEYS_SHARE_MAX: Final = 0.25  # Of the sample's bytes, that the keys of strata may take.
_SPREAD_EVERY: Final = 16  # Tuples of which one tells of the spread, by position.


@dataclass(frozen=True, slots=True, eq=False)
class StratifiedView:
    """Rows kept by the group of some columns; never changed.

    columns: the strata are of their values. rows, and strata int32 [rows], the stratum of each.
    population, read: int64 [strata], tuples of each and how many of them are in `rows`: a simple
      random sample without replacement. Stratum 0 is of all groups that found no room for their
      own; every other is of one group.
    moments: of the measures, by stratum, over all tuples; not to be changed.
    """

    columns: tuple[str, ...]
    rows: pa.RecordBatch
    strata: NDArray[np.int32]
    population: NDArray[np.int64]
    read: NDArray[np.int64]
    moments: Mapping[str, GroupedMoments]

    @property
    def is_everything(self) -> bool:
        """Return whether every tuple is in `rows`."""
        return bool((self.read == self.population).all())

    @property
    def has_others(self) -> bool:
        """Return whether there are groups without a stratum of their own."""
        return bool(self.population[OTHERS : OTHERS + 1].any())


class Strata:
    """The stratified sample of a stream by some of its columns. Used by one thread.

    columns: of the strata. measures: numeric columns whose spread decides on the sizes of strata:
      sizes are after Neyman (`allocation.neyman`) for the average of their deviations, each in
      units of the usual one. The spread is that of every 16th tuple by position, kept or not: it
      must not depend on the random keys that decide what is kept. Sums and ranges are of all.
    """

    def __init__(
        self,
        schema: StreamSchema,
        columns: tuple[str, ...],
        *,
        rows: int,
        measures: tuple[str, ...] = (),
    ) -> None:
        """Begin empty; `rows` are kept, of all strata together."""
        self.columns = columns
        self.measures = measures
        self._schema = schema
        types = {column.name: column.type for column in schema.columns}
        self._groups = tuple(Column(name, types[name]) for name in columns)
        self._measured = tuple(Column(name, types[name]) for name in measures)
        self._keys = GroupKeys(self._groups, rows // ROWS_PER_STRATUM)
        self.rows_max = rows
        self._sample = StratifiedBottomK(1, rows)
        self._fixed_bytes = fixed_bytes(arrow_schema(schema))
        self._seen_bytes: NDArray[np.float64] = np.zeros(1)
        self._rows = KeptRows(arrow_schema(schema))
        whole = [types[name] is not ColumnType.DOUBLE for name in measures]
        self._moments = [GroupedMoments(1, integer=each) for each in whole]
        self._spread = [GroupedMoments(1, integer=each, variance=True) for each in whole]

    @property
    def size_bytes(self) -> int:
        """Bytes held by keys, rows and the moments of measures."""
        spread = sum(moments.size_bytes for moments in (*self._moments, *self._spread))
        return self._sample.size_bytes + self._rows.size_bytes + self._keys.size_bytes + spread

    def update(
        self,
        first_position: int,
        frame: Frame,
        sizes: NDArray[np.int64] | None,
    ) -> None:
        """Offer the next tuples of the stream, all of them.

        sizes: int64 [rows], bytes of each tuple; None where all have the same.
        """
        start = position_start(self._schema.seed, first_position)
        ids = self._keys.assign(frame)
        self._sample.grow(self._keys.size)
        self._rows.move(self._sample.update(ids, start), frame)
        self._measure(frame, ids, first_position)
        if len(self._seen_bytes) < self._keys.size:
            self._seen_bytes = grown(self._seen_bytes, self._keys.size)
        if sizes is not None:
            self._seen_bytes += np.bincount(ids, sizes, minlength=len(self._seen_bytes))
        if self._sample.is_full:
            self._cut()

    @property
    def seen_bytes(self) -> NDArray[np.float64]:
        """float64 [strata], of all tuples, kept or not; 0 where all tuples are of one size."""
        return self._seen_bytes[: self._keys.size]

    def fit(self, size_bytes: float, greatest_bytes: int) -> bool:
        """Hold at most this many bytes, as predicted by the sizes of all tuples.

        How many rows are kept of each stratum follows from the mean size of all of its tuples, and
        never from the rows that are kept.

        Args:
          size_bytes: of the rows. greatest_bytes: no tuple is larger.

        Returns:
          whether enough rows are left for each stratum; else this sample is to be dropped.
        """
        if self._keys.size_bytes > KEYS_SHARE_MAX * size_bytes:
            return False
        if greatest_bytes * 2 * self.rows_max <= size_bytes and self._sample.k == self.rows_max:
            return True
        least = ROWS_PER_STRATUM_MIN * self._keys.size
        while (expected := self._expected_bytes()) > size_bytes:
            rows = min(self._sample.k, float(self._sample.expected().sum()))
            fitting = int(rows * CUT_SHARE * size_bytes / expected / 2.0)
            if fitting < least:
                return False
            self._sample.resize(fitting)
            self._cut()
        if 4.0 * expected <= size_bytes and self._sample.k < self.rows_max:
            self._sample.resize(min(2 * self._sample.k, self.rows_max))
        return True

    def _expected_bytes(self) -> float:
        mean = np.maximum(
            self.seen_bytes / np.maximum(self._sample.population, 1), self._fixed_bytes
        )
        return float((self._sample.expected() * mean).sum())

    def view(self) -> StratifiedView:
        """The sample as of now."""
        chosen = self._sample.chosen()
        held = self._rows.together()
        rows = held.take(pa.array(chosen.rows, pa.int64()))
        every = np.arange(self._keys.size)
        for each in self._moments:
            each.grow(self._keys.size)
        moments = {n: m.select(every) for n, m in zip(self.measures, self._moments, strict=True)}
        return StratifiedView(
            self.columns, rows, chosen.ids, chosen.population, chosen.read, moments
        )

    def _measure(self, frame: Frame, ids: NDArray[np.int32], first_position: int) -> None:
        skipped = -first_position % _SPREAD_EVERY
        each = zip(self._measured, self._moments, self._spread, strict=True)
        for column, moments, spread in each:
            moments.grow(self._keys.size)
            spread.grow(self._keys.size)
            present = frame.present(column)
            values = np.asarray(present.values)
            if present.rows is None:
                measured: slice | NDArray[np.int64] = slice(skipped, None, _SPREAD_EVERY)
                groups = ids
            else:
                measured = np.flatnonzero(present.rows % _SPREAD_EVERY == skipped)
                groups = ids[present.rows]
            moments.update(groups, values)
            spread.update(groups[measured], values[measured])

    def _cut(self) -> None:
        self._rows.move(self._sample.cut(self.deviation()))

    def deviation(self) -> NDArray[np.float64]:
        """float64 [strata], of one tuple, from the measures; of strata that told nothing, 1."""
        strata = self._keys.size
        found = np.zeros(strata)
        for moments in self._spread:
            moments.grow(strata)
            each, counts = moments.deviation(), moments.counts()
            known = ~each.null & (each.value > 0)
            usual = np.average(each.value[known], weights=counts[known]) if known.any() else 1.0
            found += np.where(each.null, 1.0, each.value / usual)
        return found if self._spread else np.ones(strata)

    def to_parts(self) -> list[bytes]:
        """The state but for its rows; `restore` takes it back with them."""
        parts = [self._keys.to_bytes(), self._sample.to_bytes()]
        return [*parts, *(each.to_bytes() for each in (*self._moments, *self._spread))]

    @property
    def rows(self) -> KeptRows:
        """The held rows, in the order of the sample's keys."""
        return self._rows

    def restore(
        self, parts: Iterator[bytes], rows: KeptRows, seen_bytes: Sequence[float] | None
    ) -> None:
        """Continue from the state of an earlier process; no tuple was offered here yet.

        seen_bytes: None where a version wrote it that did not count them: the rows tell.
        """
        assert self._keys.size == 1, self._keys.size
        self._keys.restore(next(parts))
        self._sample = StratifiedBottomK.from_bytes(next(parts))
        self._moments = [GroupedMoments.from_bytes(next(parts)) for _ in self._measured]
        self._spread = [GroupedMoments.from_bytes(next(parts)) for _ in self._measured]
        self._rows = rows
        if seen_bytes is None:
            held = rows.together()
            mean = float(row_bytes(held).mean()) if held.num_rows else 0.0
            self._seen_bytes = mean * self._sample.population.astype(np.float64)
        else:
            self._seen_bytes = np.array(seen_bytes)
