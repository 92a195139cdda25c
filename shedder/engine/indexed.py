"""One-time questions by value index: few row groups instead of all files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shedder.archive.entries import Run
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.run_files import Snapshot
from shedder.archive.store import Store
from shedder.archive.value_index import Ranges, keys_of
from shedder.cql.evaluate import evaluate, true_rows
from shedder.cql.index_ranges import Stretch, stretches_of
from shedder.cql.query import BoundQuery
from shedder.cql.render import POSITION
from shedder.cql.types import ColumnType
from shedder.errors import CorruptData

GROUPS_SHARE = 1 / 16
"""More of a run's row groups than this are read faster as a whole, by DuckDB's threads."""
ROWS_MAX = 1 << 20  # That are looked up; what is left then is read as a whole.

_ENDS = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp:
    """What indexes have answered.

    rows: that WHERE keeps, of `columns` and POSITION. done: by first position, the runs that they
    are of, so that nobody needs to read these. read: tuples that were read for them.
    """

    rows: tuple[pa.RecordBatch, ...] = ()
    done: frozenset[int] = frozenset()
    read: int = 0
    column: str | None = None


def usable(store: Store, stream: int, query: BoundQuery) -> tuple[str, Ranges] | None:
    """The column whose index is asked for a query, and for which keys; None: none is of use."""
    indexed = store.indexes(stream)
    if not indexed:
        return None
    said = {name: s for name, s in stretches_of(query.where).items() if name in indexed}
    if not said:
        return None
    name = min(said, key=lambda name: (any(s.low != s.high for s in said[name]), name))
    types = {column.name: column.type for column in query.schema.columns}
    return name, _ranges(said[name], types[name])


def look_up(
    store: Store,
    stream: int,
    query: BoundQuery,
    snapshot: Snapshot,
    columns: Sequence[str],
    told: Callable[[], None] = lambda: None,
) -> LookedUp:
    """Read what WHERE keeps of those runs whose index says that little of them is needed.

    A run whose row groups are damaged is left to who reads files as a whole, and finds it damaged.

    Args:
      store, stream: whose indexes.
      query: with a WHERE.
      snapshot: of the stream.
      columns: that are wanted.
      told: called before each run; what it raises ends the work.

    Raises:
      StorageFailed: a run cannot be read.
    """
    use = usable(store, stream, query)
    if use is None or query.where is None:
        return LookedUp()
    name, ranges = use
    names = tuple(dict.fromkeys((*columns, POSITION)))
    wanted = Wanted(query.schema.time_column, names)
    kept: list[pa.RecordBatch] = []
    done: set[int] = set()
    rows = read = 0
    for run in snapshot.runs:
        told()
        groups = store.look_up(run, name, ranges)
        if groups is None or rows > ROWS_MAX or not _is_little(run, len(groups)):
            continue
        try:
            for table in snapshot.read_groups(run, [int(group) for group in groups], wanted):
                read += table.num_rows
                for batch in table.to_batches():
                    found = batch.filter(pa.array(true_rows(evaluate(query.where, batch))))
                    if found.num_rows:
                        kept.append(found)
                        rows += found.num_rows
        except CorruptData:
            kept = [batch for batch in kept if not _is_of(run, batch)]
            continue
        done.add(run.first_position)
    return LookedUp(tuple(kept), frozenset(done), read, name)


def _is_little(run: Run, groups: int) -> bool:
    """Whether so many row groups are few; a run in order of position has only large ones."""
    return not groups or (run.is_dealt and groups <= GROUPS_SHARE * run.blocks)


def _is_of(run: Run, batch: pa.RecordBatch) -> bool:
    first = batch.column(POSITION)[0].as_py()
    return bool(run.first_position <= first < run.end_position)


def _ranges(stretches: Sequence[Stretch], kind: ColumnType) -> Ranges:
    return [
        (_key(stretch.low, kind, _ENDS[0]), _key(stretch.high, kind, _ENDS[1]))
        for stretch in stretches
    ]


def _key(value: float | str | None, kind: ColumnType, end: int) -> int:
    """The key of a constant, which need not fit the column."""
    if value is None:
        return end
    if kind in (ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.TIMESTAMP, ColumnType.DATE):
        return int(np.clip(value, *_ENDS)) if isinstance(value, float) else int(value)
    return int(keys_of(pa.array([value], kind.arrow), kind)[0])
