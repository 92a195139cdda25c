"""COUNT(*) over an equi-join of two windows, in bounded bytes and with an interval; STRICT.

A pane is the tuples of one slide. Each side holds the panes of its window (synopses/joins). The
count is exact until the keys of a pane exceed its bytes. The result depends on the tuples, their
order and the seed alone, not on how steps divide them. Keys are known by a hash of 64 bits, which
is injective for one column of fixed width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.plans.logical_plan import KeySampling, companions_of
from shedder.cql.statements.relational_text import EVERY_TICK_US
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.changes import NEVER_US, ChangeBatch
from shedder.dataflow.key_directory import canonical, hash_columns
from shedder.dataflow.update_patterns import EdgeLabel
from shedder.errors import BadQuery, BudgetExceeded
from shedder.streams.batches import TIME_MIN_US
from synopses.joins.join_size import join_size
from synopses.joins.pane_counts import (
    NO_KEYS,
    ClosedPane,
    PaneCounts,
    PaneRoom,
    heavy_keys,
)
from synopses.kernels.hashing import position_keys
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound

_Row = tuple[int, int, int, str]
_KINDS = (pa.int64(), pa.int64(), pa.string(), pa.bool_())
_SCHEMA = pa.schema(
    [("a0", pa.int64()), *zip(companions_of("a0"), _KINDS, strict=True)]  # type: ignore[arg-type]
)
_EMPTY: _Row = (0, 0, 0, Bound.EXACT.word)


@dataclass(frozen=True, slots=True)
class SampledJoinSpec:
    """A join whose pairs are counted.

    keys: expressions of each side; rows with equal keys are pairs, and NULL matches nothing.
    lifetimes_us: range and slide of each side's window.
    sampling: confidence, seed and bytes.
    """

    keys: tuple[tuple[Expression, ...], tuple[Expression, ...]]
    lifetimes_us: tuple[tuple[int, int], tuple[int, int]]
    sampling: KeySampling

    @property
    def slide_us(self) -> int:
        """Slide of both windows."""
        return self.lifetimes_us[0][1]

    @property
    def panes(self) -> int:
        """Panes that both sides hold at a time: those of their windows, and an open one each."""
        return sum(range_us // slide_us + 1 for range_us, slide_us in self.lifetimes_us)

    def sizes(self) -> PaneRoom:
        """Return the sizes of each pane.

        Raises:
          BadQuery: the windows are not whole numbers of one slide.
          BudgetExceeded: a pane would have too few bytes.
        """
        slide_us = self.slide_us
        is_whole = all(it % slide_us == 0 and of == slide_us for it, of in self.lifetimes_us)
        if not is_whole or slide_us == EVERY_TICK_US:
            raise BadQuery(
                "CONFIDENCE in a join needs windows with one SLIDE that divides each RANGE, such "
                "as [RANGE 1 HOUR SLIDE 1 MINUTE]"
            )
        try:
            return PaneRoom.within(self.sampling.bytes_max, self.panes)
        except BadParameter as error:
            raise BudgetExceeded(
                f"the join has {self.panes:,} panes, RANGE / SLIDE and one more of each window; "
                f"they need {PaneRoom.bytes_min(self.panes):,} bytes, and the query has "
                f"{self.sampling.bytes_max:,}, half of row_query_bytes_max; take a longer SLIDE, "
                "or raise the setting"
            ) from error


def not_sampled() -> BadQuery:
    """Return the error of CONFIDENCE in another query."""
    return BadQuery(
        "CONFIDENCE in a row query is for a join of two streams by equal keys alone, each with a "
        "window such as [RANGE 1 HOUR SLIDE 1 MINUTE]; without CONFIDENCE the rows are exact"
    )


class _WindowPanes:
    """The panes of one window. Panes are known by the instant at which they are born."""

    def __init__(self, range_us: int) -> None:
        self.range_us = range_us
        self.open: dict[int, PaneCounts] = {}
        self.closed: dict[int, ClosedPane] = {}
        self.heaviest: tuple[int, Any] = (0, NO_KEYS)  # Of the pane that was closed last.

    @property
    def size_bytes(self) -> int:
        return sum(pane.size_bytes for pane in self.panes)

    @property
    def panes(self) -> list[PaneCounts | ClosedPane]:
        """Return all panes that are held."""
        return [*self.open.values(), *self.closed.values()]

    def close_until(self, instant_us: int) -> None:
        """Close the panes that are born, and forget those that have left the window."""
        for born_us in sorted(each for each in self.open if each <= instant_us):
            pane = self.open.pop(born_us)
            self.closed[born_us], self.heaviest = pane.closed(), (born_us, pane.heaviest())
        for born_us in [each for each in self.closed if each + self.range_us <= instant_us]:
            del self.closed[born_us]

    def window(self, instant_us: int) -> list[ClosedPane]:
        """Return the panes that are in the window as of an instant, the oldest first."""
        return [
            self.closed[born_us]
            for born_us in sorted(self.closed)
            if born_us <= instant_us < born_us + self.range_us
        ]


class SampledJoinSize:
    """Count of the pairs of a join.

    schema: of the output: columns of value, low, high, bound and met.

    At a slide at which the row differs, the old row gets weight -1 and the new row 1.
    """

    def __init__(self, spec: SampledJoinSpec) -> None:
        """An operator over empty windows.

        Raises:
          BadQuery, BudgetExceeded: as `SampledJoinSpec.sizes`.
        """
        self.spec = spec
        self.schema = _SCHEMA
        self._sizes = spec.sizes()
        self._secrets = position_keys(spec.sampling.seed, 0, 2)
        self._sides = tuple(_WindowPanes(range_us) for range_us, _ in spec.lifetimes_us)
        self._row = _EMPTY
        self._is_new = True

    @property
    def size_bytes(self) -> int:
        """Bytes of the panes of both sides."""
        return sum(side.size_bytes for side in self._sides)

    @property
    def level(self) -> int:
        """The highest level of the panes: their keys are sampled at 2^-level or more."""
        panes = (pane for side in self._sides for pane in side.panes)
        return max((pane.level for pane in panes), default=0)

    def apply(self, as_of_us: int, *inputs: ChangeBatch) -> ChangeBatch:
        """The rows of the slides up to an instant.

        Raises:
          BudgetExceeded: the windows may have more pairs than can be counted.
        """
        found: list[tuple[int, _Row, int]] = []  # Instant, row and weight.
        if self._is_new:
            self._is_new = False
            found.append((TIME_MIN_US + 1, self._row, 1))
        hashed = [self._hashed(side, changes) for side, changes in enumerate(inputs)]
        births = np.unique(np.concatenate([born_us for born_us, _ in hashed])).tolist()
        for birth_us in births:
            found += self._slides(min(birth_us - 1, as_of_us))
            for side, (born_us, hashes) in zip(self._sides, hashed, strict=True):
                first, end = np.searchsorted(born_us, [birth_us, birth_us + 1])
                if first < end:
                    self._pane(side, birth_us).update(hashes[first:end])
        found += self._slides(as_of_us)
        return self._changes(found)

    def _hashed(self, side: int, changes: ChangeBatch) -> tuple[Any, Any]:
        """Return births and hashes of the keys of rows without NULL, in order of event time."""
        assert (changes.weight == 1).all()  # Time windows over streams have no others.
        keys = [canonical(evaluate(key, changes.columns)) for key in self.spec.keys[side]]
        order = np.argsort(changes.ts_us, kind="stable")
        if any(key.null_count for key in keys):
            valid = np.logical_and.reduce([np.asarray(key.is_valid()) for key in keys])
            order = order[valid[order]]
        names = [str(place) for place in range(len(keys))]
        rows = take_rows(pa.RecordBatch.from_arrays(keys, names=names), order)
        return changes.born_us[order], hash_columns(rows.columns)

    def _pane(self, side: _WindowPanes, born_us: int) -> PaneCounts:
        pane = side.open.get(born_us)
        if pane is None:
            before = [it.heaviest for it in self._sides]
            heaviest = [keys for of_us, keys in before if of_us == born_us - self.spec.slide_us]
            heavy = heavy_keys(heaviest, self._sizes.heavy)
            pane = side.open[born_us] = PaneCounts(self._sizes, self._secrets, heavy)
        return pane

    def _slides(self, until_us: int) -> Iterator[tuple[int, _Row, int]]:
        """Advance both windows to an instant; yield the rows that leave and those that enter."""
        for instant_us in self._instants(until_us):
            for side in self._sides:
                side.close_until(instant_us)
            row = self._counted(instant_us)
            if row != self._row:
                yield instant_us, self._row, -1
                yield instant_us, row, 1
                self._row = row

    def _instants(self, until_us: int) -> list[int]:
        """Return the instants, up to one, at which a pane is born or leaves."""
        births = {born_us for side in self._sides for born_us in side.open}
        ends = {
            born_us + side.range_us
            for side in self._sides
            for born_us in (*side.open, *side.closed)
        }
        return sorted(each for each in births | ends if each <= until_us)

    def _counted(self, instant_us: int) -> _Row:
        left, right = (side.window(instant_us) for side in self._sides)
        try:
            found = join_size(left, right, self._secrets, confidence=self.spec.sampling.confidence)
        except OverflowError as error:
            raise BudgetExceeded(
                f"the windows may have more than 2^62 pairs ({error}); shorter windows or a WHERE "
                "have fewer"
            ) from error
        value, low, high = (int(each[0]) for each in (found.value, found.low, found.high))
        return value, low, high, Bound(int(found.bound[0])).word

    def _changes(self, found: list[tuple[int, _Row, int]]) -> ChangeBatch:
        names = self.schema.names
        columns = pa.RecordBatch.from_pylist(
            [dict(zip(names, (*row, None), strict=True)) for _, row, _ in found],
            schema=self.schema,
        )
        instants = np.array([instant_us for instant_us, _, _ in found], np.int64)
        weight = np.array([each for _, _, each in found], np.int64)
        return ChangeBatch(columns, instants - 1, instants, np.full(len(found), NEVER_US), weight)


def sampled_join_size(
    sampling: KeySampling, keys: Sequence[tuple[Expression, ...]], labels: Sequence[EdgeLabel]
) -> SampledJoinSize:
    """Return the operator of a join. keys, labels: of both sides.

    Raises:
      BadQuery: a side is no time window over a stream; or as `SampledJoinSize`.
      BudgetExceeded: as `SampledJoinSize`.
    """
    left, right = (label.lifetime_us for label in labels)
    if left is None or right is None:
        raise not_sampled()
    ours, theirs = keys
    return SampledJoinSize(SampledJoinSpec((ours, theirs), (left, right), sampling))
