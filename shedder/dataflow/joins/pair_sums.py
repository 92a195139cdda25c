"""COUNT, SUM and AVG over an equi-join, without its pairs; STRICT.

It holds counts and sums per key and side. A row costs one look-up, whatever the number of its
partners. It serves aggregates of arguments of one side each, over all pairs or by the join key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, Column, Expression, walk
from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from shedder.dataflow.joins.join_keys import directory_of, keyed
from shedder.dataflow.joins.match_condition import Keys
from shedder.dataflow.joins.pair_sum_kernels import sum_pairs
from shedder.dataflow.pending_events import Events, PendingEvents
from shedder.dataflow.sums.sum_results import SummedArguments, arguments_of
from shedder.streams.batches import TIME_MIN_US

_KEYS_MIN = 64
_PURGE_KEYS_MIN = 4096  # A directory below this size is not searched for keys without rows.


@dataclass(frozen=True, slots=True)
class PairSumSpec:
    """Aggregates over the pairs of rows with equal keys.

    keys: (left, right) expressions. groups: places of keys, in the order of GROUP BY; all of
    them, or none. left, right: arguments of either side.
    """

    keys: Keys
    groups: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    left: tuple[Expression, ...]
    right: tuple[Expression, ...]

    @classmethod
    def of(
        cls,
        keys: Keys,
        groups: tuple[Expression, ...],
        aggregates: tuple[Aggregate, ...],
        names: tuple[frozenset[str], frozenset[str]],
    ) -> PairSumSpec | None:
        """The aggregates of a GROUP BY over a join; None: they need the pairs.

        names: the columns of the left and the right side.
        """
        if not keys:
            return None
        places = [
            next((at for at, key in enumerate(keys) if group in key), None) for group in groups
        ]
        if groups and sorted(at for at in places if at is not None) != list(range(len(keys))):
            return None
        arguments = arguments_of(aggregates)
        sides = [_side(argument, names) for argument in arguments]
        if None in sides:
            return None
        left, right = (
            tuple(argument for argument, on in zip(arguments, sides, strict=True) if on == side)
            for side in (0, 1)
        )
        return cls(keys, tuple(at for at in places if at is not None), aggregates, left, right)


def _side(argument: Expression, names: tuple[frozenset[str], frozenset[str]]) -> int | None:
    read = {node.name for node in walk(argument) if isinstance(node, Column)}
    return next((side for side, known in enumerate(names) if read <= known), None)


class PairSums:
    """Counts and sums over pairs; the output is that of `GroupedSums` over the join."""

    def __init__(self, spec: PairSumSpec, schema: pa.Schema) -> None:
        """An operator over two empty relations. schema: of the output."""
        self._spec, self._schema = spec, schema
        self._sides = (SummedArguments(spec.left), SummedArguments(spec.right))
        self._summed = SummedArguments([*self._sides[0].arguments, *self._sides[1].arguments])
        width = 2 + max(len(side.arguments) for side in self._sides)
        self._pending = (PendingEvents(width), PendingEvents(width))
        self._width = width
        self._directory = directory_of([left for left, _ in spec.keys])
        self._lefts, self._rights = (
            np.zeros((_KEYS_MIN, side.state_words), np.int64) for side in self._sides
        )
        self._allocate_groups(_KEYS_MIN if spec.groups else 1)
        self._is_touched = np.zeros(_KEYS_MIN, np.bool_)
        self._purge_at = _PURGE_KEYS_MIN
        self._is_new = True

    @property
    def spec(self) -> PairSumSpec:
        """What is summed."""
        return self._spec

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys, their sums and the rows that will leave."""
        waiting = sum(pending.size_bytes for pending in self._pending)
        sums = self._lefts.nbytes + self._rights.nbytes + self._states.nbytes
        return self._directory.size_bytes + sums + self._results.nbytes + waiting

    def apply(self, as_of_us: int, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        """The rows of the groups whose results differ up to the instant."""
        for side, changes in enumerate((left, right)):
            self._push(side, changes)
        parts = [pending.due(as_of_us) for pending in self._pending]
        due = Events.concat(parts)
        self._reserve(self._directory.size)
        instants, ids, weight = (np.empty(2 * len(due), np.int64) for _ in range(3))
        results = np.empty((2 * len(due), self._results.shape[1]), np.int64)
        made = sum_pairs(
            np.ascontiguousarray(due.instant_us),
            np.ascontiguousarray(due.ids),
            np.ascontiguousarray(due.weight),
            np.ascontiguousarray(due.values),
            self._sides[0].kinds,
            self._sides[1].kinds,
            self._summed.kinds,
            not self._spec.groups,
            self._lefts,
            self._rights,
            self._states,
            self._results,
            self._is_touched,
            instants,
            ids,
            weight,
            results,
        )
        rows = self._rows(instants[:made], ids[:made], weight[:made], results[:made])
        if self._directory.size > self._purge_at:
            self._purge()
        if not self._is_new or self._spec.groups:
            return rows
        self._is_new = False
        return ChangeBatch.concat([self._empty_row(), rows])

    def _push(self, side: int, changes: ChangeBatch) -> None:
        if not len(changes):
            return
        changes, ids = keyed(changes, [key[side] for key in self._spec.keys], self._directory)
        values = np.zeros((len(changes), self._width), np.int64)
        values[:, 0] = side
        own = self._sides[side].values(changes)
        values[:, 1 : 1 + own.shape[1]] = own
        self._pending[side].push(changes, ids, values)

    def _rows(
        self, instants: Int64s, ids: Int64s, weight: Int64s, results: NDArray[np.int64]
    ) -> ChangeBatch:
        keys = self._directory.keys(ids).columns if self._spec.groups else []
        groups = [keys[place] for place in self._spec.groups]
        values = [self._summed.column(each, results) for each in self._spec.aggregates]
        columns = pa.RecordBatch.from_arrays([*groups, *values], schema=self._schema)
        never = np.full(len(ids), NEVER_US)
        return ChangeBatch(columns, instants - 1, instants, never, weight)

    def _empty_row(self) -> ChangeBatch:
        """The row of no pairs, which is in the relation from the beginning of time."""
        one = np.ones(1, np.int64)
        results = np.zeros((1, self._results.shape[1]), np.int64)
        return self._rows(one * (TIME_MIN_US + 1), one * 0, one, results)

    def _allocate_groups(self, groups: int) -> None:
        self._states = np.zeros((groups, self._summed.state_words), np.int64)
        self._results = np.zeros((groups, self._summed.result_words), np.int64)

    def _reserve(self, keys: int) -> None:
        if keys > len(self._lefts):
            self._keep_words(np.arange(len(self._lefts)), 2 * keys)

    def _keep_words(self, kept: NDArray[np.int64], room: int) -> None:
        """Keep the words of these keys, in this order, in arrays for so many keys."""
        self._lefts = _in_room(self._lefts[kept], room)
        self._rights = _in_room(self._rights[kept], room)
        self._is_touched = np.zeros(room, np.bool_)
        if self._spec.groups:
            self._states = _in_room(self._states[kept], room)
            self._results = _in_room(self._results[kept], room)

    def _purge(self) -> None:
        """Forget keys without rows and without events, once they are half of all."""
        size = self._directory.size
        used = (self._lefts[:size, 0] != 0) | (self._rights[:size, 0] != 0)
        for pending in self._pending:
            used |= pending.used(size)
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int64)
            new_ids[kept] = np.arange(1, len(kept) + 1)
            for pending in self._pending:
                pending.renumber(new_ids)
            self._directory.keep(kept)
            self._keep_words(np.concatenate([[0], kept]), max(_KEYS_MIN, len(kept) + 1))
        self._purge_at = max(_PURGE_KEYS_MIN, 2 * self._directory.size)


def _in_room(words: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    wide = np.zeros((room, words.shape[1]), np.int64)
    wide[: len(words)] = words
    return wide
