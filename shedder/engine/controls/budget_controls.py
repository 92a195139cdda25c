"""Budget controls: weights and activity of standing queries, and the synopsis budget."""

from __future__ import annotations

import json
import threading

import pyarrow as pa

from allocator.demands import BYTES_END
from shedder.archive.log.setting_changes import BudgetAltered, QueryAltered, RowLimitAltered
from shedder.cql.statements.statement import WEIGHT_MAX
from shedder.engine.allocation.explain import allocation_table
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.apply.setting_records import alter
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.thinning_levels import WEIGHT
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.lifetime import Lifetime
from shedder.errors import (
    BadSetting,
    BudgetExceeded,
    RowQueryFailed,
    StorageFailed,
    Unavailable,
)
from shedder.settings import ROW_QUERY_BYTES_MIN, parse_bytes

SET_BACK = "default"


class BudgetControls:
    """Weights, activity and the budget of synopses. Every change is durable on return."""

    def __init__(
        self, core: EngineState, lifetime: Lifetime, ddl: threading.RLock, sharing: Rebalancer
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._sharing = sharing

    def set_weight(self, name: str, weight: float) -> None:
        """Set the weight of a query's errors against those of other queries.

        Raises:
          UnknownQuery. BadSetting: no weight. RowQueryFailed: the message says why.
          DiskFull, StorageFailed: nothing has changed.
        """
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (is_number and 0 < weight <= WEIGHT_MAX):
            raise _bad_weight(weight)
        rows = self._core.row_query(name)
        if rows is not None and rows.failed:
            raise RowQueryFailed(rows.failed)
        if rows is not None and rows.thinning is not None:
            self._set_row_weight(rows, float(weight))
        else:
            self._alter(name, weight=weight)

    def weight_from(self, name: str, value: str) -> None:
        """Set a query's weight to a text: 2.5."""
        try:
            weight = float(value)
        except ValueError:
            raise _bad_weight(value) from None
        self.set_weight(name, weight)

    def set_join_bytes(self, name: str, size_bytes: int) -> str:
        """Have a query with CONFIDENCE over a join hold so many bytes, from the next instant on.

        Fewer bytes hold at once. More are for the panes that begin later.

        Returns:
          What it may hold now, for people.

        Raises:
          UnknownQuery. BadSetting: it is another query, or more than half of row_query_bytes_max.
          BudgetExceeded: its panes need more, or its bytes have changed too often.
          RowQueryFailed: the message says why.
          DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        with self._ddl:
            query = self._core.row_query(name)
            if query is None:
                self._core.standing_query(name)
            elif query.failed:
                raise RowQueryFailed(query.failed)
            if query is None or query.sampled_join is None:
                raise BadSetting(
                    f"query {name!r} has no bytes of its own; a join with CONFIDENCE has, and the "
                    "synopses of other aggregates share the budget of synopses"
                )
            found = query
            limit = self._core.rows.limits.query_bytes_max // 2
            if not _is_size(size_bytes, least=1, end=limit + 1):
                raise BadSetting(
                    f"bytes of {name!r} are {size_bytes!r}; they must be a whole number over 0, at "
                    f"most {limit:,}, half of row_query_bytes_max"
                )

            def resize() -> None:
                self._core.rows.settle(found)
                found.resize_join(size_bytes)

            self._core.executor.call(resize, urgent=True).result()
        return f"query {name} holds at most {size_bytes:,} bytes"

    def join_bytes_from(self, name: str, value: str) -> str:
        """Set the bytes of a join with CONFIDENCE to a text: 8MiB."""
        size = _size(value, f"bytes of {name!r}")
        if size is None:
            raise BadSetting(f"bytes of {name!r} {value!r}: there is no default; 8MiB is a size")
        return self.set_join_bytes(name, size)

    def set_active(self, name: str, *, active: bool) -> None:
        """Set whether the allocator counts a query. An inactive query keeps only spare memory.

        Raises:
          UnknownQuery. DiskFull, StorageFailed: nothing has changed.
        """
        self._alter(name, active=active)

    def _set_row_weight(self, query: RowQuery, weight: float) -> None:
        """Store the weight of a query with ON OVERLOAD SHED beside its levels."""
        catalog = self._core.store.catalog

        def stored(parameters: str) -> str:
            return json.dumps({**json.loads(parameters), WEIGHT: weight})

        def store() -> None:
            if not catalog.set_parameters(query.name, stored):
                raise StorageFailed("the query is being registered; set its weight again")
            query.set_weight(weight)

        self._lifetime.check_open()
        with self._ddl:
            self._core.executor.call(store, urgent=True).result()

    def _alter(self, name: str, *, weight: float | None = None, active: bool | None = None) -> None:
        self._lifetime.check_open()
        with self._ddl:
            stream, standing_query = self._core.standing_query(name)
            alter(
                self._core,
                QueryAltered(
                    stream.id,
                    name,
                    standing_query.weight if weight is None else weight,
                    standing_query.active if active is None else active,
                ),
            )
            is_active = standing_query.active
            try:  # A query that counts no more keeps its bytes until another needs them.
                self._sharing.settle([name] if is_active else [])
            except (BudgetExceeded, Unavailable):  # The query is altered all the same.
                self._sharing.soon()

    def set_synopsis_bytes(self, size_bytes: int | None) -> None:
        """The budget of all synopses from now on, in place of the settings'; None: that again.

        Raises:
          BadSetting: no whole number, not positive, or 2^63 and more.
          BudgetExceeded: the standing queries do not fit.
          DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        if size_bytes is not None and not _is_size(size_bytes, least=1, end=BYTES_END):
            raise BadSetting(
                f"the budget of synopses is {size_bytes!r}; it must be a whole number of bytes, "
                "over 0 and below 2^63, or None for that of the settings"
            )
        with self._ddl:
            try:
                with self._core.trying_budget(size_bytes):
                    self._sharing.settle()
                    alter(self._core, BudgetAltered(size_bytes))
            except BaseException:
                self._sharing.soon()  # As things were.
                raise

    def set_row_query_bytes(self, size_bytes: int | None) -> None:
        """The limit of the state of a row query from now on; None: that of the settings again.

        A query that holds more keeps fewer keys, or fails.

        Raises:
          BadSetting: no whole number, less than 1 MiB, or 2^63 and more.
          DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        least = ROW_QUERY_BYTES_MIN
        if size_bytes is not None and not _is_size(size_bytes, least=least, end=BYTES_END):
            raise BadSetting(
                f"the limit of a row query is {size_bytes!r}; it must be a whole number of bytes, "
                f"from {least:,} on and below 2^63, or None for that of the settings"
            )
        with self._ddl:
            alter(self._core, RowLimitAltered(size_bytes))
            self._core.executor.call(self._core.rows.fit, urgent=True).result()

    def row_query_from(self, value: str) -> None:
        """Set the limit of a row query to a text: 64MiB, or default."""
        self.set_row_query_bytes(_size(value, "limit of a row query"))

    def allocation(self) -> pa.Table:
        """Tabulate bytes, errors and prices of each query: EXPLAIN ALLOCATION."""
        self._lifetime.check_open()
        return allocation_table(
            self._sharing.problem(self._sharing.requests()),
            self._core.synopsis_bytes,
            self._sharing.last,
            group_bytes_max=self._core.settings.group_bytes_max,
            drawings=self._sharing.priced,
        )

    def budget_from(self, value: str) -> None:
        """Set the budget of synopses to a text: 64MiB, or default."""
        self.set_synopsis_bytes(_size(value, "budget of synopses"))


def _is_size(value: object, *, least: int, end: int) -> bool:
    """Return whether a value is a whole number, at least `least` and below `end`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < end


def _size(value: str, what: str) -> int | None:
    """Read a size, 64MiB; None: default."""
    if value.strip().lower() == SET_BACK:
        return None
    try:
        size = parse_bytes(value)
    except ValueError as error:
        raise BadSetting(f"{what} {value!r}: {error}") from error
    assert isinstance(size, int)
    return size


def _bad_weight(weight: object) -> BadSetting:
    return BadSetting(f"weight is {weight!r}; it must be a number over 0, at most {WEIGHT_MAX:g}")
