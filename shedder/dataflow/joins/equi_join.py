"""Windowed equi-join: pairs of rows of two inputs with equal keys and common instants.

The join is linear in both inputs, so it takes rows of any sign: the weight of a pair is the
product of the weights. A pair is born with its later part, and expires with its earlier one.
The pairs of a step come in any order.
Source: Kang, Naughton, Viglas 2003, Evaluating window joins over unbounded streams; Golab 2006,
chapter 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.joins.arriving_side import ArrivingSide
from shedder.dataflow.joins.join_kernels import Int32s
from shedder.dataflow.joins.join_keys import KeyedRows, directory_of
from shedder.dataflow.joins.join_side import JoinSide
from shedder.dataflow.joins.waiting_rows import WaitingRows
from shedder.dataflow.joins.window_side import WindowSide
from shedder.dataflow.key_directory import canonical, equal_rows
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.stores.key_chains import is_exact
from shedder.dataflow.update_patterns import EdgeLabel
from shedder.errors import BudgetExceeded

_PAIRS_MAX = 1 << 16  # Pairs that are made at a time, before a condition on pairs drops some.
_KEYS_MIN = 4096  # A directory below this size is not searched for keys without rows.


@dataclass(frozen=True, slots=True)
class EquiJoinSpec:
    """What makes a pair.

    keys: (left, right) expressions that are equal in a pair, with one type; (): all pairs.
    condition: true of a pair, over the columns of both; None: none.
    nulls_are_equal: NULL keys match each other; else they match nothing.
    """

    keys: tuple[tuple[Expression, Expression], ...]
    condition: Expression | None = None
    nulls_are_equal: bool = False


class EquiJoin:
    """Inner join of two inputs; memory is that of the rows which can still find a partner."""

    def __init__(
        self,
        spec: EquiJoinSpec,
        schemas: tuple[pa.Schema, pa.Schema],
        labels: tuple[EdgeLabel, EdgeLabel],
        bytes_max: int,
        *,
        eager: bool = False,
        windows: tuple[WindowSide | None, WindowSide | None] = (None, None),
        arriving: ArrivingSide | None = None,
    ) -> None:
        """A join without rows.

        Args:
          spec: what makes a pair.
          schemas, labels: of the left and the right input; names of columns differ.
          bytes_max: of the pairs of one step.
          eager: rows that have left are searched for, and dropped, in each step.
          windows: sides whose rows are in the store of a stream; None: the join holds them.
          arriving: a side whose rows are not held once they have a partner; no row of the other
            side is deleted.
        """
        self._spec = spec
        self._schema = pa.schema([*schemas[0], *schemas[1]])
        self._bytes_max = bytes_max
        sides: list[JoinSide | WindowSide | ArrivingSide] = []
        for at, window in enumerate(windows):
            if arriving is not None and arriving.place == at:
                sides.append(arriving)
            else:
                sides.append(window or JoinSide(schemas[at], labels[at], eager=eager))
        self._sides = tuple(sides)
        self.arriving = arriving
        self._waiting: WaitingRows | None = None
        if arriving is not None and arriving.within:
            at = arriving.place
            self._waiting = WaitingRows(schemas[at], labels[at], arriving.within)
        left_keys = [left for left, _ in spec.keys]
        is_looked_up = bool(self._held)
        self._directory = directory_of(left_keys) if spec.keys and is_looked_up else None
        self._is_exact = is_exact(tuple(left_keys))
        self._purge_at = _KEYS_MIN
        self._since_us = 0

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the pairs of one step."""
        self._bytes_max = bytes_max

    @property
    def spec(self) -> EquiJoinSpec:
        """What makes a pair."""
        return self._spec

    @property
    def windows(self) -> tuple[WindowSide | None, ...]:
        """The sides whose rows are in the store of a stream; None: the join holds them."""
        return tuple(side if isinstance(side, WindowSide) else None for side in self._sides)

    @property
    def searched_rows(self) -> int:
        """Rows that were looked at in searches for rows that have left, or that are deleted."""
        return sum(side.searched_rows for side in self._held)

    @property
    def size_bytes(self) -> int:
        """Bytes of the sides that the join holds, and of their keys."""
        keys = 0 if self._directory is None else self._directory.size_bytes
        waiting = 0 if self._waiting is None else self._waiting.size_bytes
        sides = (side.size_bytes for side in self._sides if isinstance(side, JoinSide))
        return keys + waiting + sum(sides)

    @property
    def _held(self) -> list[JoinSide]:
        """Rows that the join holds."""
        held = [side for side in self._sides if isinstance(side, JoinSide)]
        return held if self._waiting is None else [*held, self._waiting.side]

    def apply(self, as_of_us: int, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        """As `parts`, at once."""
        return finished(self.parts(as_of_us, left, right))

    def parts(self, as_of_us: int, left: ChangeBatch, right: ChangeBatch) -> Parts[ChangeBatch]:
        """The pairs of new rows, among each other and with the rows before.

        A part makes so many pairs as the kernel makes in one or two calls.

        Raises:
          BudgetExceeded: the pairs of this step need more bytes than the limit.
        """
        pieces: list[ChangeBatch] = []
        yield from self._pairs(pieces, as_of_us, left, right)
        self._since_us = as_of_us + 1
        self._forget(as_of_us)
        if not pieces:
            return ChangeBatch.empty(self._schema)
        return ChangeBatch.concat(pieces)

    def _pairs(
        self, pieces: list[ChangeBatch], as_of_us: int, left: ChangeBatch, right: ChangeBatch
    ) -> Parts[None]:
        ours, theirs = self._sides
        new = self._keyed(left, 0), self._keyed(right, 1)
        ids = [each.ids(self._directory) for each in new]
        if self.arriving is not None:
            yield from self._arriving_pairs(pieces, as_of_us, self.arriving, new, ids)
            return
        before_us = theirs.as_of_us if isinstance(theirs, WindowSide) else None
        yield from self._collect(pieces, self._pairs_of(new[0], ids[0], 0, before_us))
        if isinstance(ours, JoinSide):
            ours.insert(new[0].changes, ids[0], self._since_us)
        yield from self._collect(pieces, self._pairs_of(new[1], ids[1], 1, as_of_us))
        if isinstance(theirs, JoinSide):
            theirs.insert(new[1].changes, ids[1], self._since_us)

    def _arriving_pairs(
        self,
        pieces: list[ChangeBatch],
        as_of_us: int,
        arriving: ArrivingSide,
        new: Sequence[KeyedRows],
        ids: Sequence[Int32s],
    ) -> Parts[None]:
        """The pairs of a step, where rows of one side are not held once they have a partner."""
        at, other = arriving.place, 1 - arriving.place
        ours, theirs = new[at].changes, new[other].changes
        held = self._sides[other]
        if isinstance(held, JoinSide):
            held.insert(theirs, ids[other], self._since_us)
        arriving.begin(ours)
        yield from self._collect(pieces, self._pairs_of(new[at], ids[at], at, as_of_us))
        without = arriving.end(ours)
        if self._waiting is None:
            return
        self._waiting.insert(ours.where(without), ids[at][without], self._since_us, theirs.ts_us)
        yield from self._collect(pieces, self._later_pairs(theirs, ids[other], other))
        arriving.count_missing(self._waiting.end_step(as_of_us, theirs.ts_us))

    def _later_pairs(self, new: ChangeBatch, ids: Int32s, side: int) -> Iterator[ChangeBatch]:
        """Pairs of new rows of a side with rows of the other one that wait for them."""
        assert self._waiting is not None
        for made in self._waiting.pairs(new, ids, _PAIRS_MAX):
            pairs = self._joined(new, made, self._waiting.side.columns(made[1]), side)
            if self._spec.condition is not None:
                pairs = pairs.where(true_rows(evaluate(self._spec.condition, pairs.columns)))
            yield pairs

    def _keyed(self, changes: ChangeBatch, side: int) -> KeyedRows:
        keys = [key[side] for key in self._spec.keys]
        return KeyedRows.of(changes, keys, nulls_are_equal=self._spec.nulls_are_equal)

    def _pairs_of(
        self, new: KeyedRows, ids: Int32s, side: int, as_of_us: int | None
    ) -> Iterator[ChangeBatch]:
        """Pairs of new rows of a side with the rows of the other one, before an instant."""
        others = self._sides[1 - side]
        assert not isinstance(others, ArrivingSide)
        for made, rows in self._found(new, ids, others, as_of_us):
            pairs, given = self._joined(new.changes, made, rows, side), made[0]
            if not self._is_exact and isinstance(others, WindowSide):
                equal = self._are_equal(pairs.columns)
                pairs, given = pairs.where(equal), given[equal]
            if self.arriving is not None:
                pairs = pairs.where(self.arriving.chosen(new.changes, given, pairs.ts_us))
            if self._spec.condition is not None:
                pairs = pairs.where(true_rows(evaluate(self._spec.condition, pairs.columns)))
            yield pairs

    def _joined(
        self, new: ChangeBatch, made: NDArray[np.int64], rows: pa.RecordBatch, side: int
    ) -> ChangeBatch:
        """Return pairs of rows of a side, as `probe_rows` has made them, with rows of the other."""
        ours = take_rows(new.columns, made[0])
        columns = [*ours.columns, *rows.columns] if side == 0 else [*rows.columns, *ours.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return ChangeBatch(batch, made[2], made[3], made[4], made[5])

    def _found(
        self, new: KeyedRows, ids: Int32s, others: JoinSide | WindowSide, as_of_us: int | None
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        if isinstance(others, WindowSide):
            yield from others.pairs(new.changes, new.hashes(), as_of_us, _PAIRS_MAX)
            return
        for made in others.pairs(new.changes, ids, _PAIRS_MAX):
            yield made, others.columns(made[1])

    def _are_equal(self, pairs: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return in which pairs of equal hashes the keys are equal."""
        sides = [
            pa.RecordBatch.from_arrays(
                [canonical(evaluate(key[side], pairs)) for key in self._spec.keys],
                names=[str(place) for place in range(len(self._spec.keys))],
            )
            for side in (0, 1)
        ]
        return equal_rows(*sides)

    def _collect(self, pieces: list[ChangeBatch], more: Iterator[ChangeBatch]) -> Parts[None]:
        size_bytes = sum(piece.size_bytes for piece in pieces)
        for number, piece in enumerate(more):
            if number:
                yield
            size_bytes += piece.size_bytes
            if size_bytes > self._bytes_max:
                raise BudgetExceeded(
                    f"a join made pairs of more than {self._bytes_max:,} bytes in one step; a "
                    "further condition, shorter windows or an aggregate make fewer pairs"
                )
            if len(piece):
                pieces.append(piece)

    def _forget(self, as_of_us: int) -> None:
        """Drop rows that find no more partners, and then keys without rows."""
        for side in self._sides:
            if isinstance(side, WindowSide):
                side.come_to(as_of_us)
            elif isinstance(side, JoinSide) and side.may_compact:
                side.compact(as_of_us)
        if self._directory is None or self._directory.size <= self._purge_at:
            return
        size = self._directory.size
        used = np.zeros(size, np.bool_)
        for side in self._held:
            used |= side.used(size)
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int32)
            new_ids[kept] = np.arange(1, len(kept) + 1, dtype=np.int32)
            self._directory.keep(kept)
            for side in self._held:
                side.renumber(new_ids)
        self._purge_at = max(_KEYS_MIN, 2 * self._directory.size)
