"""Dataflow of a query with ON OVERLOAD SHED: it keeps a sample of keys when bytes are short.

The plan commutes with a selection by the hash of its keys (`thinning_keys`). So each stratum of
keys has operators and sinks of its own, and the result is the rows of all strata together. To
raise the level, the lowest stratum is dropped with all its state; no operator knows of it. To
lower the level, empty strata read along, one more than are shown. They take the place of all
strata once their windows are full, if they need no more than half of the room. So memory that
operators hold for a flood is given back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.plans.thinning_keys import ThinningKeys
from shedder.dataflow.batch_rows import take_rows
from shedder.dataflow.estimates.state_bytes import StateBytes
from shedder.dataflow.join_order import StreamStatistics
from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.sharing.shared_source import StreamSource
from shedder.dataflow.sharing.source_graph import Agrees
from shedder.dataflow.step_parts import Parts, finished
from shedder.dataflow.tables.table_places import TablePlaces
from shedder.dataflow.tables.table_versions import TableVersions
from shedder.engine.dataflow.flow import FlowStep, RowFlow, SharedPart
from shedder.engine.dataflow.growing_strata import GrowingStrata
from shedder.engine.dataflow.row_completeness import of_plan, of_relation, of_stretch
from shedder.engine.dataflow.row_output import BEGINNING_US
from shedder.engine.dataflow.row_precision import PREDICTED, RowPrecision
from shedder.engine.dataflow.row_target import EVENT_TIME
from shedder.engine.dataflow.rows_bound import RowsBound
from shedder.engine.dataflow.thinning_levels import (
    LEVEL_MAX,
    KeyStrata,
    KeyThinning,
    LevelStore,
    strata_of,
)
from shedder.errors import BudgetExceeded, StorageFailed
from shedder.queries.answers.completeness import Completeness

_STRATUM = "#stratum"  # Column of the stratum of each row, within a step.
ROOM_SHARE = 2  # Of the limit, that more keys may take: it is not exceeded at once again.


@dataclass(frozen=True, slots=True, eq=False)
class ThinnedStep:
    """What the strata have made in a step. before_us: instant before it; None: there is none."""

    before_us: int | None
    made: Mapping[RowFlow, FlowStep]


class ThinnedFlow:
    """As `RowFlow`, of which it has one for each stratum of keys.

    An instant has the rows of the strata that its level has. Rows of one event time come by
    stratum. They depend on the tuples and on the levels alone, so a restart makes them again.
    """

    def __init__(
        self,
        made: Callable[[], RowFlow],
        keys: ThinningKeys,
        thinning: KeyThinning,
        store: LevelStore,
        *,
        bound: RowsBound | None,
        bytes_max: int,
        span_us: int | None,
        from_us: int | None = None,
    ) -> None:
        """A flow without tuples.

        Args:
          made: returns operators and sinks without tuples.
          keys: of the plan.
          thinning: seed, and levels as they were stored.
          store: for later levels.
          bound: of the rows of each key; None: there is none.
          bytes_max: of the state.
          span_us: event time before an instant whose tuples the state needs; None: any.
          from_us: no earlier instant is made again; None: all may be.
        """
        self._keys = keys
        self._strata = KeyStrata(thinning.seed)
        self._thinning = thinning
        self._store = store
        self._bound = bound
        least = thinning.least_level(from_us)
        self._flows = {stratum: made() for stratum in range(least, LEVEL_MAX + 1)}
        self._growing = GrowingStrata(made, span_us=span_us, bytes_max=bytes_max // ROOM_SHARE)
        self._broken = -1  # The highest stratum that found no room within a step.
        first = self._whole
        self.is_stream, self.columns, self.schema = first.is_stream, first.columns, first.schema
        self._columns = {
            alias: tuple(name[len(alias) + 1 :] for name in names)
            for alias, names in keys.sources.items()
        }
        self.shared_parts: tuple[SharedPart, ...] = ()
        self.is_shared, self.backlog_bytes = False, 0
        self.versions: Mapping[str, TableVersions] = {}
        self.places = TablePlaces()
        self.corrects = frozenset[str]()

    @property
    def _whole(self) -> RowFlow:
        """The flow of the stratum that is never left out."""
        return self._flows[LEVEL_MAX]

    @property
    def _read(self) -> list[tuple[int, RowFlow]]:
        """The strata that read tuples, but for those that have lost their state."""
        found = [each for each in self._flows.items() if each[0] > self._broken]
        return [*found, *self._growing.flows.items()]

    def _is_shown(self, stratum: int, flow: RowFlow) -> bool:
        return self._flows.get(stratum) is flow

    @property
    def thinning(self) -> KeyThinning:
        """Seed and levels."""
        return self._thinning

    @property
    def sources(self) -> Mapping[str, StreamSource]:
        """As `RowFlow.sources`."""
        return self._whole.sources

    @property
    def size_bytes(self) -> int:
        """Bytes of all strata."""
        counts = 0 if self._bound is None else self._bound.size_bytes
        shown = sum(each.size_bytes for each in self._flows.values())
        return counts + self._growing.size_bytes + shown

    @property
    def as_of_us(self) -> int | None:
        """As `RowFlow.as_of_us`."""
        return self._whole.as_of_us

    def share_with(self, other: object, agrees: Agrees) -> None:
        """Share nothing: other queries have other keys."""

    def split(self) -> None:
        """Nothing is shared."""

    @property
    def may_wait(self) -> bool:
        """Return False: levels of keys change between steps."""
        return False

    def queue_filters(self) -> bool:
        """Return False: its steps do not wait."""
        return False

    def filter_ahead(self, watermarks: Mapping[str, int]) -> None:
        """Do nothing: no filter has a queue."""

    def leave(self) -> None:
        """Nothing is shared."""

    def keeps(self, rows: object) -> bool:  # noqa: ARG002
        """Return False: no other query reads a store of this one."""
        return False

    def least_place(self, alias: str) -> None:
        """Return None: the plan has no tables."""

    @property
    def unmatched(self) -> None:
        """Return None: both sides of a join are held."""

    def count_unmatched(self, from_us: int | None, unmatched: Unmatched) -> None:
        """Nothing is counted."""

    def end_step(self) -> None:
        """As `RowFlow.end_step`."""
        for each in self._flows.values():
            each.end_step()

    def go_on(self) -> None:
        """As `RowFlow.go_on`."""
        for each in self._flows.values():
            each.go_on()

    # --- tuples and rows -------------------------------------------------------------------------

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
    ) -> None:
        """As `RowFlow.push`; tuples of strata that are left out are not held."""
        if not batch.num_rows:
            return
        time: pa.Array[Any] = batch.column(self.sources[alias].time_column)
        times_us = time.cast(pa.int64()).to_numpy()
        self._growing.note_tuples(int(times_us.max()))
        hashes = self._strata.hashes([batch.column(name) for name in self._columns[alias]])
        if self._bound is not None:
            self._bound.update(alias, hashes, times_us)
        strata = strata_of(hashes)
        for stratum, flow in self._read:
            self._push(stratum, flow, alias, batch, positions, strata)

    def _push(
        self,
        stratum: int,
        flow: RowFlow,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
        strata: NDArray[np.int64],
    ) -> None:
        rows = np.flatnonzero(strata == stratum)
        if not len(rows):
            return
        try:
            flow.push(alias, take_rows(batch, rows), positions[rows])
        except BudgetExceeded as error:
            self._break(stratum, flow, error)

    def advance(self, watermarks: Mapping[str, int]) -> pa.Table:
        """As `RowFlow.advance`."""
        return self.end(finished(self.parts(watermarks)))

    def parts(self, watermarks: Mapping[str, int]) -> Parts[ThinnedStep]:
        """Make a step of each stratum, for `end`.

        A stratum that is left out from a known instant on does not go beyond it.
        """
        before_us, made = self.as_of_us, dict[RowFlow, FlowStep]()
        for stratum, flow in self._read:
            end_us = self._thinning.end_us(stratum) if self._is_shown(stratum, flow) else None
            marks = watermarks
            if end_us is not None:
                marks = {alias: min(us, end_us - 1) for alias, us in watermarks.items()}
            try:
                made[flow] = yield from flow.parts(marks)
            except BudgetExceeded as error:
                self._break(stratum, flow, error)
        return ThinnedStep(before_us, made)

    def end(self, step: ThinnedStep) -> pa.Table:
        """Put a step's changes into the relations, and return the rows that are complete now."""
        tables: list[pa.Table] = []
        for stratum, flow in self._read:
            try:
                table = flow.end(step.made[flow])
            except BudgetExceeded as error:
                self._break(stratum, flow, error)
                continue
            if self._is_shown(stratum, flow):
                of = pa.array(np.full(len(table), stratum, np.int64))
                tables.append(table.append_column(_STRATUM, of))
        if self._broken >= min(self._flows):
            first_us = BEGINNING_US if step.before_us is None else step.before_us + 1
            if not self._raise(self._broken + 1, first_us):
                raise BudgetExceeded(
                    "a step of a part of its keys needs more memory, and the query cannot leave "
                    "them out while the server starts or the query is being registered"
                )
        self._leave_ended()
        self._grow()
        if self._bound is not None and self.as_of_us is not None:
            self._bound.forget(self.as_of_us)
        return self._shown(pa.concat_tables(tables))

    def _shown(self, table: pa.Table) -> pa.Table:
        """Return the rows at whose instants their stratum is not left out, by event time."""
        instants_us = table[EVENT_TIME].cast(pa.int64()).to_numpy() + 1
        strata = table[_STRATUM].to_numpy()
        shown = np.zeros(len(table), np.bool_)
        for stratum in np.unique(strata).tolist():
            shown |= (strata == stratum) & self._thinning.has(stratum, instants_us)
        rows = np.flatnonzero(shown)
        rows = rows[np.argsort(instants_us[rows], kind="stable")]
        return table.drop_columns([_STRATUM]).take(rows)

    def relation(self) -> pa.Table:
        """Return the present rows of a query that is a relation."""
        return pa.concat_tables([each.relation() for each in self._flows.values()])

    # --- levels ----------------------------------------------------------------------------------

    @property
    def growing_bytes(self) -> int:
        """Bytes of strata that read along."""
        return self._growing.size_bytes

    @property
    def bytes_by_level(self) -> list[int]:
        """Return the bytes of the strata that are shown at each level from the present one on."""
        sizes = [self._flows[stratum].size_bytes for stratum in sorted(self._flows, reverse=True)]
        return [*accumulate(sizes)][::-1]

    @property
    def _next_us(self) -> int:
        return BEGINNING_US if self.as_of_us is None else self.as_of_us + 1

    def set_bytes_max(self, bytes_max: int) -> None:
        """As `RowFlow.set_bytes_max`."""
        for _, flow in self._read:
            flow.set_bytes_max(bytes_max)
        self._growing.set_bytes_max(bytes_max // ROOM_SHARE)

    def relieve(self, excess_bytes: int) -> bool:
        """Free so many bytes from the next instant on; return False if that is not possible.

        If levels cannot be stored now, nothing is freed before they can be.
        """
        if self._growing.flows:
            excess_bytes -= self._growing.size_bytes
            self._growing.give_up(self._next_us)
        level = min(self._flows)
        while excess_bytes > 0 and level < LEVEL_MAX:
            excess_bytes -= self._flows[level].size_bytes
            level += 1
        if excess_bytes > 0:
            return False
        if level > min(self._flows):
            self._raise(level, self._next_us)
        return True

    def set_level_min(self, level: int) -> None:
        """Keep at most 2^-level of the keys from the next instant on, and all where there is room.

        Raises:
          StorageFailed: levels cannot be stored now. DiskFull.
        """
        before, self._thinning = self._thinning, replace(self._thinning, level_min=level)
        try:
            is_stored = self._raise(max(level, min(self._flows)), self._next_us)
        except BaseException:
            self._thinning = before
            raise
        if not is_stored:
            self._thinning = before
            raise StorageFailed("the query is being registered; set its thinning again")

    def _raise(self, level: int, first_us: int) -> bool:
        """Leave strata below a level out from an instant on; return whether that is stored."""
        first_us = BEGINNING_US if self._store.is_new else first_us
        thinning = self._thinning
        if level != thinning.level:
            thinning = thinning.with_level(first_us, level)
        if not self._store.put(thinning):
            return False
        self._thinning = thinning
        self._flows = {it: flow for it, flow in self._flows.items() if it >= level}
        self._broken = -1
        self._growing.restart(first_us)
        return True

    def _break(self, stratum: int, flow: RowFlow, error: BudgetExceeded) -> None:
        """Note that a stratum found no room in a step, so that its state is lost.

        Raises:
          BudgetExceeded: it is the last one.
        """
        if not self._is_shown(stratum, flow):
            self._growing.give_up(self._next_us)
        elif stratum == LEVEL_MAX:
            raise error
        else:
            self._broken = max(self._broken, stratum)

    def _leave_ended(self) -> None:
        """Drop strata whose next instant is the one from which on they are left out."""
        as_of_us = self.as_of_us
        for stratum in [*self._flows]:
            end_us = self._thinning.end_us(stratum)
            if end_us is not None and as_of_us is not None and as_of_us + 1 >= end_us:
                del self._flows[stratum]

    def _grow(self) -> None:
        """Begin to read with one more stratum, and show it when all are whole and have room."""
        level, as_of_us, thinning = min(self._flows), self.as_of_us, self._thinning
        growing = self._growing
        if as_of_us is None:
            return
        if growing.is_due(as_of_us) and level == thinning.level > thinning.level_min:
            growing.begin(level - 1)
        elif growing.is_whole(as_of_us):
            if not growing.has_room:
                growing.give_up(self._next_us)
            elif self._store.put(thinning := thinning.with_level(as_of_us + 1, level - 1)):
                self._thinning, self._flows = thinning, growing.take(as_of_us)

    # --- what it says ----------------------------------------------------------------------------

    def completeness(self, table: pa.Table) -> Completeness:
        """Return what the rows of an answer say of all.

        table: of the relation, or of the stream.
        """
        columns = self._keys.columns
        hashes = self._strata.hashes([table[name].combine_chunks() for name in columns])
        if table.column_names[-2:] != self.schema.names[-2:]:
            counted = None if self._bound is None else self._bound.certain()
            certain = of_plan(self._keys.rows_max, counted)
            return of_relation(columns, hashes, min(self._flows), certain)
        times_us = table[EVENT_TIME].cast(pa.int64()).to_numpy()
        now_us = self._next_us - 1
        start_us, end_us = (int(f(times_us)) if len(times_us) else now_us for f in (np.min, np.max))
        level = self._thinning.highest_level(start_us + 1, end_us + 1)
        return of_stretch(columns, hashes, level, start_us, end_us)

    @property
    def plan_choices(self) -> list[tuple[str, str]]:
        """What statistics decided of the plan, and which keys are kept, in words."""
        level = min(self._flows)
        kept = f"1/{1 << level} of the keys" if level else "all keys"
        keys = ", ".join(self._keys.columns)
        return [
            *self._whole.plan_choices,
            ("on overload", f"shed; keeps {kept} ({keys})"),
            (PREDICTED, RowPrecision.at(level).text),
        ]

    def operators(self) -> list[OperatorFacts]:
        """Return the facts of the operators of all strata together."""
        found = [each.operators() for each in self._flows.values()]
        return [
            replace(
                facts[-1],
                size_bytes=sum(it.size_bytes for it in facts),
                rows_in=sum(it.rows_in for it in facts),
                rows_out=sum(it.rows_out for it in facts),
                ns=sum(it.ns for it in facts),
                searched_rows=sum(it.searched_rows for it in facts),
                shared=None,
            )
            for facts in zip(*found, strict=True)
        ]

    def estimated_bytes(self, statistics: Mapping[str, StreamStatistics]) -> list[StateBytes]:
        """Return what each of `operators` is expected to hold at level 0."""
        return self._whole.estimated_bytes(statistics)
