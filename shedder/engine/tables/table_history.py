"""History of a table: what its newest changes have replaced, for questions AS OF an instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from shedder.archive.log.table_changes import ChangeKind
from shedder.archive.tables.table_rows import TableRows
from shedder.cql.text.durations import timestamp_text
from shedder.errors import BeforeRetention

HISTORY_SHARE = 16  # All tables together keep 1/16 of table_bytes; 32 MiB, as a rule.
CHANGE_BYTES = 4096  # Memory of a change beside its values, measured with one row of 3 columns.
_IS_ROW = "#is_row"  # A column beside those of the table.


@dataclass(frozen=True, slots=True, eq=False)
class PastChange:
    """A change.

    changed_us: first instant with it. keys: of its rows. replaced: the rows that had these keys.
    """

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
    """

    def __init__(self, clock_us: Callable[[], int], bytes_max: int) -> None:
        """Memory without changes. clock_us: us since 1970. bytes_max: of all that are kept."""
        self.clock_us = clock_us
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._changes: deque[tuple[TableHistory, int]] = deque()

    def add(self, history: TableHistory, size_bytes: int) -> None:
        """Count a change that a history has, and forget the oldest ones if there are too many."""
        self._changes.append((history, size_bytes))
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max:
            oldest, size_bytes = self._changes.popleft()
            oldest.forget_oldest()
            self.size_bytes -= size_bytes


class TableHistory:
    """The newest changes of a table.

    begin_us: the oldest instant as of which the rows are known.
    """

    def __init__(self, memory: HistoryMemory) -> None:
        """No changes: the rows are known from now on. memory: has its changes."""
        self._memory = memory
        self._changes: deque[PastChange] = deque()
        self.begin_us = self._newest_us = memory.clock_us()

    def add(self, keys: pa.RecordBatch, replaced: tuple[pa.RecordBatch, ...]) -> None:
        """Keep a change that is in force from now on.

        A clock that goes back gives the change the instant of the change before it.

        keys, replaced: as of `PastChange`.
        """
        self._newest_us = max(self._newest_us, self._memory.clock_us())
        copied = keys.take(np.arange(keys.num_rows))  # Without the values beside them.
        change = PastChange(self._newest_us, copied, replaced)
        self._changes.append(change)
        self._memory.add(self, change.size_bytes)

    def forget_oldest(self) -> None:
        """Forget the oldest change."""
        self.begin_us = self._changes.popleft().changed_us

    def begin(self) -> None:
        """Begin now: changes from before are lost. It has none."""
        assert not self._changes
        self.begin_us = self._newest_us = max(self._newest_us, self._memory.clock_us())

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
