"""History of a table: what its newest changes have replaced, for questions AS OF an instant."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.text.durations import timestamp_text
from shedder.engine.tables.change_places import PLACE_BYTES, ChangePlaces
from shedder.errors import BeforeRetention

HISTORY_SHARE = 16  # All tables together keep 1/16 of table_bytes; 32 MiB, as a rule.
# Memory of a change beside its values and its place, measured with one row of 3 columns.
CHANGE_BYTES = 4096 - PLACE_BYTES
_IS_ROW = "#is_row"  # A column beside those of the table.


@dataclass(frozen=True, slots=True, eq=False)
class PastChange:
    """A change.

    number: as of `HistoryMemory.place`. changed_us: first instant with it. keys: of its rows.
    replaced: the rows that had these keys.
    """

    number: int
    changed_us: int
    keys: pa.RecordBatch
    replaced: tuple[pa.RecordBatch, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the keys and of the rows, and of what holds them."""
        return CHANGE_BYTES + self.keys.nbytes + sum(each.nbytes for each in self.replaced)


class HistoryMemory:
    """Memory of the histories of all tables, in which the oldest change makes way for new ones.

    Changes are added by one thread.

    places: of changes in the log.
    """

    def __init__(
        self,
        clock_us: Callable[[], int],
        bytes_max: int,
        positions: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        """Memory without changes.

        clock_us: us since 1970. bytes_max: of all that are kept. positions: of all streams, by id.
        """
        self.clock_us = clock_us
        self.places = ChangePlaces(positions)
        self._changes_bytes = 0
        self._bytes_max = bytes_max
        self._changes: deque[tuple[int, int, TableHistory]] = deque()  # (number, bytes, history).

    @property
    def size_bytes(self) -> int:
        """Bytes of the changes that histories have, and of the places of all changes."""
        return self._changes_bytes + self.places.size_bytes

    def add(self, history: TableHistory, number: int, size_bytes: int) -> None:
        """Count a change that a history has, and forget the oldest ones if there are too many.

        A change whose place was forgotten is forgotten, too: its table was replayed behind others.
        """
        insort(self._changes, (number, size_bytes, history), key=lambda each: each[0])
        self._changes_bytes += size_bytes
        while self._changes and (
            self.size_bytes > self._bytes_max or self._changes[0][0] < self.places.first
        ):
            _, size_bytes, oldest = self._changes.popleft()
            oldest.forget_oldest()
            self._changes_bytes -= size_bytes
            self.places.forget(self._changes[0][0] if self._changes else self.places.newest + 1)

    def remove(self, history: TableHistory) -> None:
        """Count the changes of a history no more."""
        self._changes = deque(each for each in self._changes if each[2] is not history)
        self._changes_bytes = sum(size_bytes for _, size_bytes, _ in self._changes)


class TableHistory:
    """The newest changes of a table.

    begin_us: the oldest instant as of which the rows are known.
    begin_number: of the change before the oldest one that is kept; 0: all changes are kept.
    is_stored: the newest checkpoint has all changes.
    """

    def __init__(self, memory: HistoryMemory, *, is_known: bool = True) -> None:
        """No changes: the rows are known from now on.

        memory: has its changes. is_known: the table is new; else its earlier changes are lost, and
        the rows are known from the first change on, or from `begin` on.
        """
        self._memory = memory
        self._changes: deque[PastChange] = deque()
        self._is_known = is_known
        self.begin_us = self._newest_us = memory.clock_us() if is_known else 0
        self.begin_number = 0
        self.is_stored = False

    @classmethod
    def restored(
        cls, memory: HistoryMemory, changes: Sequence[PastChange], *, begin_us: int, begin: int
    ) -> TableHistory:
        """Return a history as a checkpoint has it. begin: as of `begin_number`."""
        history = cls(memory)
        history.begin_us = history._newest_us = begin_us
        history.begin_number = begin
        for each in changes:
            history._put(each)
        return history

    @property
    def changes(self) -> tuple[PastChange, ...]:
        """All changes that are kept, in order."""
        return tuple(self._changes)

    def note_stored(self, changes: Sequence[PastChange]) -> None:
        """Note that a checkpoint has these changes."""
        self.is_stored = self._is_known and tuple(changes) == self.changes

    def place(self) -> int:
        """Return the number of a change that is applied now."""
        return self._memory.places.next()

    def add(
        self,
        number: int,
        arrival_us: int,
        keys: pa.RecordBatch,
        replaced: tuple[pa.RecordBatch, ...],
    ) -> None:
        """Keep a change that is in force from its arrival on.

        A clock that goes back gives the change the instant of the change before it.

        number, keys, replaced: as of `PastChange`.
        """
        self.is_stored = False
        changed_us = max(self._newest_us, arrival_us)
        if not self._is_known:
            self._is_known = True
            self.begin_us, self._newest_us, self.begin_number = changed_us, changed_us, number
            return
        copied = keys.take(np.arange(keys.num_rows))  # Without the values beside them.
        self._put(PastChange(number, changed_us, copied, replaced))

    def _put(self, change: PastChange) -> None:
        self._newest_us = change.changed_us
        self._changes.append(change)
        self._memory.add(self, change.number, change.size_bytes)

    def forget_oldest(self) -> None:
        """Forget the oldest change."""
        oldest = self._changes.popleft()
        self.begin_us, self.begin_number = oldest.changed_us, oldest.number

    def lose(self) -> None:
        """Forget all: changes are lost, and the rows are known from the next change on."""
        self._memory.remove(self)
        self._changes.clear()
        self._is_known = self.is_stored = False

    def begin(self) -> None:
        """Begin now, unless the rows are known."""
        if not self._is_known:
            self._is_known = True
            self._newest_us = self.begin_us = max(self._newest_us, self._memory.clock_us())
            self.begin_number = self.place()

    def since(self, table: str, as_of_us: int) -> Sequence[PastChange]:
        """Return the changes after an instant, in order. table: its name, for the error.

        Raises:
          BeforeRetention: changes after the instant are not kept; the message has the oldest one.
        """
        if as_of_us < self.begin_us:
            requested, oldest = (
                timestamp_text(us) or f"{us} us" for us in (as_of_us, self.begin_us)
            )
            raise BeforeRetention(
                f"the rows of table {table!r} as of {requested} are not kept; the oldest instant "
                f"that can be asked is TIMESTAMP '{oldest}'"
            )
        return [change for change in self._changes if change.changed_us > as_of_us]


def rows_before(rows: TableRows, changes: Sequence[PastChange]) -> TableRows:
    """Return the rows of a table before its newest changes. changes: in order; any number.

    A key has the row that the oldest of the changes with this key replaced, or none.
    """
    if not changes:
        return rows
    schema = rows.table().schema
    columns = [pa.field(each.name, each.type) for each in schema]
    marked = pa.schema([*columns, pa.field(_IS_ROW, pa.bool_())])
    parts = []
    for change in reversed(changes):
        parts.append(_marked(change.keys, marked, is_row=False))
        parts += [_marked(batch, marked, is_row=True) for batch in change.replaced]
    last = rows.last_of_each_key(pa.concat_batches(parts))  # type: ignore[attr-defined]
    is_row = np.asarray(last.column(_IS_ROW))
    keys = last.select(list(rows.schema.key))
    without = rows.changed(ChangeKind.DELETE, keys, version=rows.version + 1)
    restored = last.filter(pa.array(is_row)).select(schema.names)
    restored = pa.RecordBatch.from_arrays(restored.columns, schema=schema)
    before = without.changed(ChangeKind.UPSERT, restored, version=rows.version + 2)
    return replace(before, version=rows.version - len(changes))


def _marked(batch: pa.RecordBatch, schema: pa.Schema, *, is_row: bool) -> pa.RecordBatch:
    """Return a batch with all columns of a schema, NULL where it has none."""
    names, size = batch.schema.names, batch.num_rows
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(size, field.type)
        for field in list(schema)[:-1]
    ]
    return pa.RecordBatch.from_arrays([*columns, pa.array([is_row] * size)], schema=schema)
