"""GROUP BY with aggregates over rows that may leave, or over the pairs of an equi-join; STRICT.

All aggregates are exact, so a row that leaves is subtracted, and a result does not depend on the
order of rows. Over a join it holds sums per key and side, and makes no pairs. Without groups there
is one row, also over an empty relation.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.changes import ChangeBatch, Int64s, never_us
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.pending_events import DueEvents, PendingEvents
from shedder.dataflow.stores.stored_window import StoredWindow
from shedder.dataflow.sums.event_kernels import aggregate_events
from shedder.dataflow.sums.sum_kernels import GroupState, ResultRows, TouchedGroups
from shedder.dataflow.sums.summed_terms import Names, SummedTerms
from shedder.dataflow.sums.value_trees import COLUMNS, FREE, TERM, VALUE
from shedder.errors import BudgetExceeded
from shedder.streams.batches import TIME_MIN_US
from synopses.kernels.cache_lines import aligned_table

_KEYS_MIN = 64
_LINE_BYTES = 64  # Of the cache.
_PURGE_KEYS_MIN = 4096  # A directory below this size is not searched for keys without rows.


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Aggregates over one input, or over the pairs of two.

    keys: expressions of each input; of two, rows with equal keys are pairs, and NULL matches
      nothing. names: columns of each input.
    groups: places of keys, in the order of GROUP BY; all of them, or none.
    in_order: rows of the one input leave in the order in which they come.
    """

    keys: tuple[tuple[Expression, ...], ...]
    groups: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    names: Names
    in_order: bool = False

    @classmethod
    def of_rows(
        cls,
        groups: tuple[Expression, ...],
        aggregates: tuple[Aggregate, ...],
        *,
        in_order: bool = False,
    ) -> AggregateSpec:
        """The aggregates of a GROUP BY over one input."""
        places = tuple(range(len(groups)))
        return cls((groups,), places, aggregates, (frozenset(),), in_order)


class GroupedAggregates:
    """Aggregates per group.

    The output has columns g0, g1, ... and a0, a1, ... of `schema`. At an instant at which the
    result of a group differs, the old row gets weight -1 and the new row 1.
    """

    def __init__(self, spec: AggregateSpec, schema: pa.Schema) -> None:
        """An operator over empty relations. schema: of the output.

        Raises:
          Unimplemented: an aggregate cannot be kept exact while rows leave.
        """
        self._spec, self._schema = spec, schema
        self._is_join = len(spec.keys) > 1
        self._summed = SummedTerms(
            spec.aggregates, spec.names, is_scalar=not spec.groups, in_order=spec.in_order
        )
        self._pending = [PendingEvents(self._summed.width) for _ in spec.keys]
        self._stored: list[StoredWindow | None] = [None for _ in spec.keys]
        fields = [(str(at), each.type.arrow) for at, each in enumerate(spec.keys[0]) if each.type]
        assert len(fields) == len(spec.keys[0])
        self._directory = KeyDirectory(pa.schema(fields)) if fields else None
        self._nodes = np.zeros((1, COLUMNS), np.int64)
        self._nodes[0, VALUE], self._nodes[0, TERM] = secrets.randbits(63), FREE
        self._free = np.zeros(1, np.int64)
        groups = _KEYS_MIN if spec.groups else 1
        self._words = np.zeros((groups, self._summed.layout.width), np.int64)
        partners = _KEYS_MIN if self._is_join else 0
        self._partners = np.zeros((partners, self._summed.layout.partner_width), np.int64)
        self._purge_at = _PURGE_KEYS_MIN
        self._is_new = True

    @property
    def spec(self) -> AggregateSpec:
        """What is computed."""
        return self._spec

    @property
    def group_bytes(self) -> int:
        """Bytes of the numbers of one group, or of one key of a join; without trees."""
        partner = self._partners.shape[1] if self._is_join else 0
        return 8 * (self._words.shape[1] + partner)

    @property
    def event_bytes(self) -> int:
        """Bytes of a row that will leave."""
        return self._pending[0].event_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the groups, their values and the rows that will leave."""
        keys = 0 if self._directory is None else self._directory.size_bytes
        waiting = sum(pending.size_bytes for pending in self._pending)
        groups = self._words.nbytes + self._partners.nbytes
        trees = self._nodes.nbytes + self._free.nbytes + self._summed.size_bytes
        return keys + waiting + groups + trees

    def apply(self, as_of_us: int, *inputs: ChangeBatch) -> ChangeBatch:
        """The rows of the groups whose results differ up to the instant.

        Raises:
          BudgetExceeded: one row stands for more copies than can be counted exactly.
        """
        for side, (changes, stored) in enumerate(zip(inputs, self._stored, strict=True)):
            fresh = changes if stored is None else stored.apply(as_of_us)
            if len(fresh):
                self._push(side, fresh)
        due = DueEvents.of(self._pending, as_of_us)
        self._reserve(1 if self._directory is None else self._directory.size, len(due))
        words, partners = self._words.reshape(-1), self._partners.reshape(-1)
        key_words = None if self._directory is None else self._directory.words
        keys = np.empty(0, np.int64) if key_words is None else key_words
        state = GroupState(words, keys, partners, self._nodes, self._free)
        most = len(due) if self._spec.groups else min(len(due), due.instants_max)
        out = ResultRows.for_groups(most, *self._summed.result_shape)
        touched = TouchedGroups.for_events(len(due), self._summed.result_words)
        made = aggregate_events(due, self._summed.layout, state, touched, out)
        if made < 0:
            raise BudgetExceeded(
                "a row stands for more than 2^28 copies or pairs; aggregates count fewer of one "
                "row exactly; shorter windows or a WHERE make fewer"
            )
        out = out.first(made)
        rows = self._rows(out, are_words=key_words is not None)
        self._summed.forget_texts(self._pending[0], self._nodes, self._words)
        if self._directory is not None and self._directory.size > self._purge_at:
            self._purge(self._directory)
        if not self._is_new or self._spec.groups:
            return rows
        self._is_new = False
        return ChangeBatch.concat([self._empty_row(), rows])

    @property
    def stored(self) -> tuple[StoredWindow | None, ...]:
        """By input, the window whose rows are in the store of a stream; None: they are held here.

        Rows are held as their words, until they leave.
        """
        return tuple(self._stored)

    def read_stored(self, side: int, window: StoredWindow) -> None:
        """Read an input's rows from a store from now on, and hold none of them."""
        self._stored[side] = window
        self._pending[side] = PendingEvents(self._summed.width)

    def _push(self, side: int, changes: ChangeBatch) -> None:
        keys: Any = [evaluate(key, changes.columns) for key in self._spec.keys[side]]
        if self._is_join and any(key.null_count for key in keys):
            valid = np.ones(len(changes), np.bool_)
            for key in keys:
                valid &= np.asarray(key.is_valid())
            rows = np.flatnonzero(valid)
            names = [str(place) for place in range(len(keys))]
            keys = take_rows(pa.RecordBatch.from_arrays(keys, names=names), rows).columns
            changes = changes.take(rows)
        ids = np.zeros(len(changes), np.int64)
        if self._directory is not None:
            ids = self._directory.assign(keys)
        self._pending[side].push(changes, ids, self._summed.values(side, changes))

    def _rows(self, out: ResultRows, *, are_words: bool) -> ChangeBatch:
        """The rows as changes. are_words: their keys are bits of the keys, and not ids."""
        groups: list[Any] = []
        if self._spec.groups:
            assert self._directory is not None
            of = self._directory.keys_of if are_words else self._directory.keys
            keys = of(out.keys).columns
            groups = [keys[place] for place in self._spec.groups]
        values = [self._summed.column(each, out) for each in self._spec.aggregates]
        columns = pa.RecordBatch.from_arrays([*groups, *values], schema=self._schema)
        never = never_us(len(out.times))
        return ChangeBatch(columns, out.times, out.instants, never, out.weight)

    def _empty_row(self) -> ChangeBatch:
        """The row of no tuples, which is in the relation from the beginning of time."""
        first, one = np.full(1, TIME_MIN_US), np.ones(1, np.int64)
        columns, reads = self._summed.result_shape
        results, nulls = np.zeros((columns, 1), np.int64), np.ones((reads, 1), np.uint8)
        row = ResultRows(first, first + 1, 0 * one, one, results, nulls)
        return self._rows(row, are_words=False)

    def _reserve(self, keys: int, events: int) -> None:
        if keys > len(self._partners if self._is_join else self._words):
            self._keep_words(slice(None), 2 * keys)
        more = events * self._summed.node_terms - self._free[0]
        if more > 0:
            size = len(self._nodes)
            self._nodes = _in_room(self._nodes, slice(None), 2 * size + more)
            free = np.zeros(len(self._nodes) + 1, np.int64)
            free[: len(self._free)] = self._free
            fresh = np.arange(size, len(self._nodes))
            free[1 + free[0] : 1 + free[0] + len(fresh)] = fresh
            free[0] += len(fresh)
            self._nodes[size:, TERM] = FREE
            self._free = free

    def _keep_words(self, kept: Int64s | slice, room: int) -> None:
        """Keep the words of these keys, in this order, in arrays for so many keys."""
        if self._is_join:
            self._partners = _in_room(self._partners, kept, room)
        if self._spec.groups:
            self._words = _in_room(self._words, kept, room)

    def _purge(self, directory: KeyDirectory) -> None:
        """Forget keys without rows and without events, once they are half of all."""
        size = directory.size
        used = self._pending[0].used(size)
        if self._is_join:
            counts = self._partners[:size, [0, self._summed.layout.right_at]]
            used |= counts.any(axis=1) | self._pending[1].used(size)
        else:
            used |= self._words[:size, 0] != 0
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            new_ids = np.zeros(size, np.int64)
            new_ids[kept] = np.arange(1, len(kept) + 1)
            for pending in self._pending:
                pending.renumber(new_ids)
            directory.keep(kept)
            self._reserve(size, 0)
            self._keep_words(np.concatenate([[0], kept]), max(_KEYS_MIN, len(kept) + 1))
        self._purge_at = max(_PURGE_KEYS_MIN, 2 * directory.size)


def _in_room(words: NDArray[np.int64], kept: Int64s | slice, room: int) -> NDArray[np.int64]:
    """These rows, and zeros behind them; the first row begins a cache line."""
    rows = words[kept]
    wide = aligned_table(room, words.shape[1])
    wide[: len(rows)], wide[len(rows) :] = rows, 0
    return wide


def output_schema(groups: tuple[Expression, ...], aggregates: tuple[Aggregate, ...]) -> pa.Schema:
    """Columns g0, g1, ... and a0, a1, ... of an aggregation."""
    named = [(f"g{at}", each.type) for at, each in enumerate(groups)]
    named += [(f"a{at}", each.type) for at, each in enumerate(aggregates)]
    fields = []
    for name, kind in named:
        assert kind is not None, name
        fields.append((name, kind.arrow))
    return pa.schema(fields)
