"""TOP over [ROWS n SLIDE m]: the most frequent values of the newest n tuples; STRICT.

A pane is m tuples of the stream. Of each pane the most frequent values are kept, k or more, and no
tuples (synopses/frequent/pane_lists.py). The result depends on the tuples and their order alone,
not on how steps divide them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.plans.logical_plan import GUARANTEED, Aggregated, RowsWindow, companions_of
from shedder.dataflow.changes import ChangeBatch, Int64s, never_us
from shedder.dataflow.key_directory import KeyDirectory, canonical
from synopses.frequent.pane_lists import ListedValues, PaneList, PaneLists, listed_places
from synopses.model.estimate import Bound

_VALUES_MIN = 1024  # Fewer values are not searched for those that no pane lists.


@dataclass(frozen=True, slots=True, eq=False)
class _TopChanges:
    """Rows of a table that enter, with weight 1, or leave, with weight -1, at an instant."""

    instant_us: int
    weight: int
    table: ListedValues
    places: Int64s


class NewestTop:
    """Operator of TOP over a window of rows; its input is a stream, in order.

    schema: of the output: the value g0, its count a0 with low, high, bound and met, and whether it
      is guaranteed.

    At a slide at which a row differs, the old row gets weight -1 and the new row 1.
    """

    def __init__(
        self, value: Expression, length: int, window: RowsWindow, kept: int | None = None
    ) -> None:
        """An empty window. length: rows. kept: values of a pane's list; None: as many."""
        assert value.type is not None
        self.value, self.length, self.window = value, length, window
        self.kept = length if kept is None else kept
        kind = value.type.arrow
        long = ColumnType.BIGINT.arrow
        kinds = (long, long, pa.string(), pa.bool_())
        companions = zip(companions_of("a0"), kinds, strict=True)
        columns: list[tuple[str, Any]] = [("g0", kind), ("a0", long), *companions]
        columns.append((GUARANTEED, pa.bool_()))
        self.schema = pa.schema(columns)
        self._directory = KeyDirectory(pa.schema([("value", kind)]))
        self._lists = PaneLists(window.rows // window.slide_rows)
        none = np.empty(0, np.int64)
        self._shown = ListedValues(none, none, none, np.empty(0, np.bool_))
        self._waiting: pa.Array[Any] = pa.array([], kind)  # Values of fewer tuples than a slide.

    @property
    def size_bytes(self) -> int:
        """Bytes of the lists, of their values, and of values that wait for the end of a pane."""
        return self._lists.size_bytes + self._directory.size_bytes + int(self._waiting.nbytes)

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """The rows that leave and those that enter, pane by pane."""
        if not len(changes):
            return ChangeBatch.empty(self.schema)
        values = canonical(evaluate(self.value, changes.columns))
        found, rows = [ChangeBatch.empty(self.schema)], list[_TopChanges]()
        for instant_us, top in self._tops(values, changes.ts_us):
            left, entered = _differences(self._shown, top)
            rows += [
                _TopChanges(instant_us, -1, self._shown, left),
                _TopChanges(instant_us, 1, top, entered),
            ]
            self._shown = top
            if self._is_sparse():  # Ids mean other values then.
                found.append(self._changes(rows))
                rows.clear()
                self._compact()
        return ChangeBatch.concat([*found, self._changes(rows)])

    def _tops(self, values: pa.Array[Any], ts_us: Int64s) -> Iterator[tuple[int, ListedValues]]:
        """The table after each pane that these values end, and the instant from which it holds."""
        before, slide = len(self._waiting), self.window.slide_rows
        both: pa.Array[Any] = pa.concat_arrays([self._waiting, values])
        whole = len(both) // slide * slide
        for end in range(slide, whole + 1, slide):
            self._append(both.slice(end - slide, slide))
            yield int(ts_us[end - 1 - before]) + 1, self._lists.top(self.length)
        self._waiting = pa.concat_arrays([both.slice(whole)])  # Without the tuples before.

    def _append(self, values: pa.Array[Any]) -> None:
        """Add the list of a pane with these values. NULLs are left out."""
        counted: Any = pc.value_counts(values.drop_null())  # By first sight.
        counts = counted.field("counts").to_numpy()
        if not len(counts):
            none = np.empty(0, np.int64)
            self._lists.append(PaneList(none, none, 0))
            return
        places, outside = listed_places(counts, self.kept)
        ids = self._directory.assign([counted.field("values").take(pa.array(places))])
        self._lists.append(PaneList(ids, counts[places], outside))

    def _is_sparse(self) -> bool:
        """Return whether no pane lists half of the values, if they are many."""
        known = self._directory.size
        return known > _VALUES_MIN and 2 * len(self._lists.ids) <= known

    def _compact(self) -> None:
        """Forget values that no pane lists, and number the others anew."""
        ids, shown = self._lists.ids, self._shown
        self._directory.keep(ids)
        self._lists.keep(ids)
        renumbered = np.searchsorted(ids, shown.ids) + 1
        self._shown = ListedValues(renumbered, shown.low, shown.high, shown.guaranteed)

    def _changes(self, rows: list[_TopChanges]) -> ChangeBatch:
        """The changes of some instants."""
        if not rows:
            return ChangeBatch.empty(self.schema)
        ids, low, high, guaranteed = (
            np.concatenate([getattr(it.table, name)[it.places] for it in rows])
            for name in ("ids", "low", "high", "guaranteed")
        )
        sizes = [len(it.places) for it in rows]
        instants_us = np.repeat([it.instant_us for it in rows], sizes)
        weights = np.repeat([it.weight for it in rows], sizes)
        words = pa.array([Bound.INTERVAL.word, Bound.EXACT.word])
        arrays: list[Any] = [
            self._directory.keys(ids).column(0),
            *map(pa.array, (low, low, high)),
            words.take(pa.array((low == high).astype(np.int64))),
            pa.nulls(len(ids), pa.bool_()),
            pa.array(guaranteed),
        ]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return ChangeBatch(columns, instants_us - 1, instants_us, never_us(len(ids)), weights)


def newest_top(plan: Aggregated, window: RowsWindow) -> NewestTop:
    """Return the operator of TOP. window: of its input."""
    assert plan.listed is not None
    (value,) = plan.groups
    return NewestTop(value, plan.listed, window, plan.kept)


def _differences(old: ListedValues, new: ListedValues) -> tuple[Int64s, Int64s]:
    """Return the rows that only the old table has, and those that only the new one has."""
    _, before, after = np.intersect1d(old.ids, new.ids, assume_unique=True, return_indices=True)
    equal = np.ones(len(before), np.bool_)
    for name in ("low", "high", "guaranteed"):
        equal &= getattr(old, name)[before] == getattr(new, name)[after]
    left, entered = np.ones(len(old), np.bool_), np.ones(len(new), np.bool_)
    left[before[equal]] = entered[after[equal]] = False
    return np.flatnonzero(left), np.flatnonzero(entered)
