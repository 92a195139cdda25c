"""Changes of tables that come while a new query reads the past of its windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from shedder.archive.log.table_changes import TableChange
from shedder.dataflow.tables.table_places import Reached
from shedder.engine.dataflow.query_tables import QueryTables
from shedder.errors import BudgetExceeded

CHANGE_BYTES = 2048  # Memory of a waiting change beside its values: a batch of 3 columns.


class FollowedChanges:
    """Changes that were applied since a query began to read its past, with their places.

    The apply thread adds changes; the thread that registers the query reads them.
    """

    def __init__(
        self,
        table_ids: Collection[int],
        reached: Callable[[], Mapping[str, Reached]],
        *,
        bytes_max: int,
    ) -> None:
        """No changes yet.

        table_ids: tables whose changes are followed. reached: positions of the query's streams
        now, by alias. bytes_max: of the changes that wait.
        """
        self._table_ids = frozenset(table_ids)
        self._reached = reached
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[TableChange, pa.RecordBatch, Mapping[str, Reached]]] = deque()
        self._added_bytes = self._read_bytes = 0
        self._is_full = False
        self.is_ended = False

    def add(self, header: TableChange, batch: pa.RecordBatch) -> None:
        """Keep a change for the query. On the apply thread, as it is applied."""
        if header.table not in self._table_ids or self._is_full:
            return
        self._added_bytes += CHANGE_BYTES + batch.nbytes
        if self._added_bytes - self._read_bytes > self._bytes_max:
            self._is_full = True  # What follows would be read without this change.
            return
        self._waiting.append((header, batch, self._reached()))

    def read(self, tables: QueryTables) -> None:
        """Apply all changes that wait, in order.

        Raises:
          BudgetExceeded: more have come than there is room for.
        """
        while self._waiting:
            header, batch, reached = self._waiting.popleft()
            self._read_bytes += CHANGE_BYTES + batch.nbytes
            tables.change_past(header, batch, reached)
        if self._is_full:
            raise BudgetExceeded(
                "the tables of the query change faster than it reads the past of its windows: "
                f"changes of more than {self._bytes_max:,} bytes wait, row_query_bytes_max; "
                "narrow its windows, change the tables in larger batches, or raise the setting"
            )

    def end(self) -> None:
        """Keep no more changes: the query stands, or its registration has failed."""
        self.is_ended = True
        self._waiting.clear()
