"""COUNT, SUM and AVG over an equi-join of windows in bounded bytes, with intervals; STRICT.

A pane is the tuples of one slide. Each input holds the panes of its window (synopses/joins). The
aggregates are exact until the keys of a pane exceed its bytes. The result depends on the tuples,
their order, the seed and the resizes alone, not on how steps divide them. A resize has an instant:
tuples before it are counted in the bytes before it. Fewer bytes hold at once, by a higher level,
fewer heavy keys and fewer buckets of all panes; more bytes are for the panes that begin later.

Keys are known by a hash of 64 bits, which is injective for one column of fixed width.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.conjunctions import names_in
from shedder.cql.expressions.expression import Expression
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.plans.logical_plan import Aggregated, Join, KeySampling
from shedder.cql.plans.plan_columns import column_names
from shedder.cql.statements.relational_text import EVERY_TICK_US
from shedder.dataflow.changes import NEVER_US, ChangeBatch, Int64s
from shedder.dataflow.sampled_joins.interval_table import IntervalColumns, IntervalTable
from shedder.dataflow.sampled_joins.joined_inputs import (
    InputAggregate,
    JoinedInput,
    are_whole,
    joined_inputs,
    values_of,
)
from shedder.dataflow.sampled_joins.joined_rows import JoinedRows
from shedder.dataflow.sampled_joins.key_labels import KeyLabels
from shedder.dataflow.sampled_joins.window_panes import WindowPanes
from shedder.dataflow.update_patterns import EdgeLabel
from shedder.errors import BadQuery, BudgetExceeded
from shedder.streams.batches import TIME_MIN_US
from synopses.joins.closed_panes import ClosedPane
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.key_tables import Words
from synopses.joins.pane_counts import PaneCounts, PaneRoom, heavy_keys
from synopses.kernels.hashing import position_keys
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound

# Of a row: in two tables, of the newest slide and the one before, as four changes of the relation
# that the query holds (CurrentRelation), and as four rows whose signs it counts (RelationToStream).
_GROUP_BYTES, _AGGREGATE_BYTES = 400, 400
# Of row_query_bytes_max and of SET BYTES, by the parts into which bytes are divided.
_SHARES = {1: ("half", "all"), 2: ("a quarter", "half"), 4: ("an eighth", "a quarter")}


@dataclass(frozen=True, slots=True)
class SampledJoinSpec:
    """A join of whose pairs aggregates are computed.

    keys: expressions of each input; rows with equal keys are pairs, and NULL matches nothing.
    lifetimes_us: range and slide of each input's window.
    values: what aggregates read of each input. aggregates: with the places of these.
    group: by which they are grouped; None: they are of all pairs.
    group_input: place of the input whose rows have the group; None: it is the only key.
    sampling: confidence, seed and bytes.
    """

    keys: tuple[tuple[Expression, ...], ...]
    lifetimes_us: tuple[tuple[int, int], ...]
    values: tuple[tuple[Expression, ...], ...]
    aggregates: tuple[InputAggregate, ...]
    group: Expression | None
    sampling: KeySampling
    group_input: int | None = None

    @property
    def slide_us(self) -> int:
        """Slide of all windows."""
        return self.lifetimes_us[0][1]

    @property
    def panes(self) -> int:
        """Panes that all inputs hold at a time: those of their windows, and an open one each."""
        return sum(range_us // slide_us + 1 for range_us, slide_us in self.lifetimes_us)

    @property
    def expressions(self) -> float:
        """Values that are read of a row, on average over the panes."""
        panes = [range_us // slide_us + 1 for range_us, slide_us in self.lifetimes_us]
        read = sum(len(of) * held for of, held in zip(self.values, panes, strict=True))
        return read / sum(panes)

    def groups_max(self, bytes_max: int) -> int | None:
        """Return how many groups have rows of their own; None: there is one row, of all pairs."""
        if self.group is None:
            return None
        row_bytes = _GROUP_BYTES + _AGGREGATE_BYTES * len(self.aggregates)
        return bytes_max // self.parts // row_bytes

    @property
    def parts(self) -> int:
        """Into how many parts bytes are divided: panes have one, rows of groups one, labels two."""
        if self.group is None:
            return 1
        return 2 if self.label_side is None else 4

    @property
    def label_side(self) -> int | None:
        """Input whose values are kept for each key; None: no values are.

        Texts of keys are those of the input of the fewest panes.
        """
        if self.group_input is not None:
            return self.group_input
        if self.group is None or self.group.type is not ColumnType.VARCHAR:
            return None
        panes = [range_us // slide_us for range_us, slide_us in self.lifetimes_us]
        return panes.index(min(panes))

    def text_length_max(self, bytes_max: int) -> int:
        """Return how many bytes a text has that may have a row of its own."""
        assert self.label_side is not None
        range_us, slide_us = self.lifetimes_us[self.label_side]
        sizes = self.sizes(bytes_max)
        return KeyLabels.length_max(
            bytes_max // 2, range_us // slide_us + 1, sizes.heavy + sizes.keys
        )

    @property
    def bytes_min(self) -> int:
        """The least bytes that the aggregates need."""
        return self.parts * PaneRoom.bytes_min(self.panes, self.expressions)

    def sizes(self, bytes_max: int) -> PaneRoom:
        """Return the sizes of each pane, so that panes and rows have so many bytes.

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
            return PaneRoom.within(bytes_max // self.parts, self.panes, self.expressions)
        except BadParameter as error:
            least = PaneRoom.bytes_min(self.panes, self.expressions)
            setting, bytes_set = _SHARES[self.parts]
            raise BudgetExceeded(
                f"the join has {self.panes:,} panes, RANGE / SLIDE and one more of each window; "
                f"they need {least:,} bytes, and the query has {bytes_max // self.parts:,} for "
                f"them ({setting} of row_query_bytes_max, or {bytes_set} of SET BYTES); take a "
                "longer SLIDE, or give it more"
            ) from error


class SampledJoinAggregates:
    """Aggregates of the pairs of a join.

    bytes_max: of panes and rows now.
    schema: of the output: the key of groups, and columns of value, low, high, bound and met of each
      aggregate. The group of keys that are not shown has the key NULL.

    At a slide at which a row differs, the old row gets weight -1 and the new row 1.
    """

    def __init__(self, spec: SampledJoinSpec) -> None:
        """An operator over empty windows.

        Raises:
          BadQuery, BudgetExceeded: as `SampledJoinSpec.sizes`.
        """
        self.spec = spec
        aggregates = tuple(each.aggregate for each in spec.aggregates)
        self._columns = IntervalColumns(spec.group, aggregates)
        self._whole = tuple(map(are_whole, spec.values))
        self.bytes_max = spec.sampling.bytes_max
        self._sizes = spec.sizes(self.bytes_max)
        self._resizes = deque(spec.sampling.resizes)  # That are not reached yet.
        self._shown_us: int | None = None  # Instant at which fewer groups have rows.
        self._secrets = position_keys(spec.sampling.seed, 0, 2)
        self._sides = tuple(
            WindowPanes(range_us, len(values))
            for (range_us, _), values in zip(spec.lifetimes_us, spec.values, strict=True)
        )
        self._labels = None
        if spec.label_side is not None:
            self._labels = KeyLabels(spec.text_length_max(self.bytes_max))
        self._heavy: tuple[tuple[int, int, int], Words] | None = None  # Of the newest panes.
        self._table = self._computed([[] for _ in spec.keys])
        self._is_new = True
        self._resize_up_to(TIME_MIN_US + 1)  # Before the first tuple.

    @property
    def schema(self) -> pa.Schema:
        """Columns of the output."""
        return self._columns.schema

    @property
    def size_bytes(self) -> int:
        """Bytes of the panes of all inputs, of the rows, and of labels."""
        labels = 0 if self._labels is None else self._labels.size_bytes
        return sum(side.size_bytes for side in self._sides) + self._table.size_bytes + labels

    @property
    def bytes_min(self) -> int:
        """As `SampledJoinSpec.bytes_min`."""
        return self.spec.bytes_min

    @property
    def level(self) -> int:
        """The highest level of the panes: their keys are sampled at 2^-level or more."""
        panes = (pane for side in self._sides for pane in side.panes)
        return max((pane.level for pane in panes), default=0)

    @property
    def hidden_text(self) -> str:
        """Return why groups are not told apart, or how many keys have no row; else nothing."""
        if self._table.mixed:
            return f"; {self._table.mixed:,} keys have several groups, which are not told apart"
        hidden = self._table.hidden
        if hidden is None or hidden.bound[0] == Bound.EXACT:
            return ""
        low, high = int(hidden.low[0]), int(hidden.high[0])
        return f"; keys without a row: {low:,} to {high:,}"

    @property
    def table(self) -> IntervalTable:
        """The present rows."""
        return self._table

    def batch(self) -> pa.RecordBatch:
        """Return the present rows as columns of `schema`, in the order of `table`."""
        return self._columns.batch(self._table, np.arange(len(self._table)))

    def apply(self, as_of_us: int, *inputs: ChangeBatch) -> ChangeBatch:
        """The rows of the slides up to an instant.

        Raises:
          BudgetExceeded: the windows may have more pairs than can be counted.
        """
        found: list[ChangeBatch] = []
        if self._is_new:
            self._is_new = False
            found.append(
                self._changes(TIME_MIN_US + 1, self._table, np.arange(len(self._table)), 1)
            )
        rows = [
            JoinedRows.of(changes, keys, values, self._label(side))
            for side, (changes, keys, values) in enumerate(
                zip(inputs, self.spec.keys, self.spec.values, strict=True)
            )
        ]
        while self._resizes and self._resizes[0][0] <= as_of_us:
            first_us, bytes_max = self._resizes.popleft()
            parts = [each.divided(first_us - 1) for each in rows]
            found += self._applied(first_us - 1, [early for early, _ in parts])
            self._resize(first_us, bytes_max)
            rows = [later for _, later in parts]
        found += self._applied(as_of_us, rows)
        self._resize_up_to(as_of_us + 1)  # As it was done before a restart, without a later tuple.
        return ChangeBatch.concat([ChangeBatch.empty(self.schema), *found])

    def resize(self, first_us: int, bytes_max: int) -> None:
        """Have other bytes from an instant on. No tuple of a later instant has been applied yet.

        Raises:
          BudgetExceeded: a pane would have too few bytes. Nothing has changed.
        """
        self.spec.sizes(bytes_max)
        self._resizes.clear()
        self._resize(first_us, bytes_max)

    def _resize_up_to(self, us: int) -> None:
        """Make the changes that have an instant up to this one."""
        while self._resizes and self._resizes[0][0] <= us:
            self._resize(*self._resizes.popleft())

    def _resize(self, first_us: int, bytes_max: int) -> None:
        self.bytes_max, self._sizes = bytes_max, self._sizes.resized(self.spec.sizes(bytes_max))
        for side in self._sides:
            side.shrink(self._sizes, self._secrets)
        if self._labels is not None:
            assert self.spec.label_side is not None
            length_max = self.spec.text_length_max(bytes_max)
            self._labels.shorten(length_max, self._sides[self.spec.label_side])
        groups_max = self.spec.groups_max(bytes_max)
        if groups_max is not None and len(self._table.hashes) > groups_max:
            self._shown_us = first_us

    def _applied(self, as_of_us: int, rows: Sequence[JoinedRows]) -> list[ChangeBatch]:
        """Count rows; return the rows of the slides up to an instant."""
        found = list[ChangeBatch]()
        for birth_us in sorted(set[int]().union(*(each.births_us for each in rows))):
            found += self._slides(min(birth_us - 1, as_of_us))
            for side, each in enumerate(rows):
                first, end = np.searchsorted(each.born_us, [birth_us, birth_us + 1])
                if first < end:
                    self._count(side, birth_us, each.at(slice(first, end)))
        found += self._slides(as_of_us)
        return found

    def _label(self, side: int) -> Expression | None:
        """Return the value that is kept for each key of an input; None: none is."""
        if side != self.spec.label_side:
            return None
        return self.spec.keys[side][0] if self.spec.group_input is None else self.spec.group

    def _count(self, side: int, birth_us: int, rows: JoinedRows) -> None:
        """Count rows of one pane."""
        pane = self._pane(side, birth_us)
        pane.update(rows.hashes, rows.values)
        if self._labels is not None and rows.labels is not None:
            self._labels.add(birth_us, pane, rows.hashes, rows.labels)

    def _pane(self, side: int, born_us: int) -> PaneCounts:
        panes = self._sides[side].open
        pane = panes.get(born_us)
        if pane is None:
            before_us = born_us - self.spec.slide_us
            centres = self._sides[side].averages
            if self._sides[side].newest_us != before_us:  # A restart would not have read it.
                centres = np.zeros(len(centres))
            centres = np.where(self._whole[side], np.rint(centres), centres)
            heavy = self._heavy_keys(before_us)
            pane = panes[born_us] = PaneCounts(self._sizes, self._secrets, heavy, centres)
        return pane

    def _heavy_keys(self, before_us: int) -> Words:
        """Return the keys that were the most frequent ones of the panes of an instant."""
        lists = [it.heaviest for it in self._sides if it.newest_us == before_us]
        if self._heavy is None or self._heavy[0] != (before_us, len(lists), self._sizes.heavy):
            found = heavy_keys(lists, self._sizes.heavy)
            self._heavy = (before_us, len(lists), self._sizes.heavy), found
        return self._heavy[1]

    def _slides(self, until_us: int) -> Iterator[ChangeBatch]:
        """Advance the windows to an instant; yield the rows that leave and those that enter."""
        for instant_us in self._instants(until_us):
            for side in self._sides:
                side.close_until(instant_us)
            if self._labels is not None:
                assert self.spec.label_side is not None
                self._labels.follow(self._sides[self.spec.label_side])
            table = self._computed([side.window(instant_us) for side in self._sides])
            left, entered = self._table.differences(table)
            yield self._changes(instant_us, self._table, left, -1)
            yield self._changes(instant_us, table, entered, 1)
            self._table, self._shown_us = table, None

    def _instants(self, until_us: int) -> list[int]:
        """Return the instants, up to one, at which a pane is born or leaves, or rows leave."""
        instants: set[int] = set().union(*(side.instants() for side in self._sides))
        instants |= set[int]() if self._shown_us is None else {self._shown_us}
        return sorted(each for each in instants if each <= until_us)

    def _computed(self, windows: Sequence[Sequence[ClosedPane]]) -> IntervalTable:
        """Return the rows of some panes of each window."""
        joined = JoinedWindows(windows, self._secrets, self._whole)
        confidence = self.spec.sampling.confidence
        groups_max = self.spec.groups_max(self.bytes_max)
        labels = None if self._labels is None else self._labels.known()
        aggregates, window = self.spec.aggregates, self.spec.group_input
        try:
            if window is None or groups_max is None:
                return IntervalTable.of(
                    joined, aggregates, groups_max=groups_max, confidence=confidence, labels=labels
                )
            return IntervalTable.of_labels(
                joined,
                aggregates,
                window=window,
                labels=labels,
                groups_max=groups_max,
                confidence=confidence,
            )
        except OverflowError as error:
            raise BudgetExceeded(
                f"the windows may have more than 2^62 pairs ({error}); shorter windows or a WHERE "
                "have fewer"
            ) from error

    def _changes(
        self, instant_us: int, table: IntervalTable, rows: Int64s, weight: int
    ) -> ChangeBatch:
        columns = self._columns.batch(table, rows)
        born_us = np.full(len(rows), instant_us)
        never = np.full(len(rows), NEVER_US)
        return ChangeBatch(columns, born_us - 1, born_us, never, np.full(len(rows), weight))


def sampled_inputs(join: Join | None) -> tuple[JoinedInput, ...]:
    """Return the inputs of a join. join: None: the rows are those of no join.

    Raises:
      BadQuery: its keys are not equal in all inputs, or there are other conditions.
    """
    found = None if join is None else joined_inputs(join)
    if found is None:
        raise _not_sampled()
    return found


def sampled_join(
    plan: Aggregated, inputs: Sequence[JoinedInput], labels: Sequence[EdgeLabel]
) -> SampledJoinAggregates:
    """Return the operator of aggregates over a join. labels: of the inputs.

    Raises:
      BadQuery: an input is no time window over a stream; an aggregate, or a group, is another one;
        or as `SampledJoinAggregates`.
      BudgetExceeded: as `SampledJoinAggregates`.
    """
    assert plan.sampling is not None
    lifetimes = tuple(it.lifetime_us for it in labels if it.lifetime_us is not None)
    read = values_of(inputs, plan.aggregates)
    if len(lifetimes) < len(labels) or read is None:
        raise _not_sampled()
    keys = tuple(each.keys for each in inputs)
    group = next(iter(plan.groups), None)
    group_input = None
    if group is not None and not _is_only_key(group, keys):
        names = [column_names(each.plan) for each in inputs]
        group_input = next((at for at, it in enumerate(names) if names_in(group) <= it), None)
        if group_input is None:
            raise BadQuery(
                f"GROUP BY {text_of(group)} with CONFIDENCE: the group reads one stream; leave "
                "CONFIDENCE away for other groups"
            )
    spec = SampledJoinSpec(keys, lifetimes, *read, group, plan.sampling, group_input)
    return SampledJoinAggregates(spec)


def _is_only_key(group: Expression, keys: Sequence[tuple[Expression, ...]]) -> bool:
    """Return whether a group is the key of a join, and the join has no other."""
    return all(len(each) == 1 for each in keys) and any(group in each for each in keys)


def _not_sampled() -> BadQuery:
    """Return the error of CONFIDENCE in another query."""
    return BadQuery(
        "CONFIDENCE in a row query is for a join of streams by equal keys alone, each with a "
        "window such as [RANGE 1 HOUR SLIDE 1 MINUTE], and for COUNT, SUM and AVG that read one "
        "stream each; without CONFIDENCE the rows are exact"
    )
