"""Thinning controls: levels that an operator sets for a query, whatever the load."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from shedder.cql.expressions.expression import Expression
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.apply.level_records import change_levels
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.thinning_levels import LEVEL_MAX
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.synopsis_plans.thinning_levels import outputs_of, synopses_of, with_levels
from shedder.errors import BadQuery, BadSetting, RowQueryFailed


class ThinningControls:
    """Levels of thinning that an operator sets."""

    def __init__(self, core: EngineState, lifetime: Lifetime, ddl: threading.RLock) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl

    def set_thinning(self, name: str, level: int | None, of: Sequence[Expression] = ()) -> str:
        """From now on, synopses of a query read the share 2^-level of the tuples; 0: all of them.

        They go on so whatever the load, until they are told another level, or none. Of a row query
        with ON OVERLOAD SHED, 2^-level of the keys are kept at most.

        Args:
          name: of the query. level: 0 to 20; None: everything, or as load has it.
          of: outputs by name, or aggregates as the query has them; empty: all of the query.

        Returns:
          What the query reads now, for people. It names the outputs, if they are not all:
          aggregates that share a synopsis share its level.

        Raises:
          UnknownQuery. BadQuery: the query has no such output. BadSetting: no such level.
          RowQueryFailed: the message says why.
          DiskFull, StorageFailed: nothing has changed.
        """
        rows = self._core.row_query(name)
        if rows is not None and rows.failed:
            raise RowQueryFailed(rows.failed)
        if rows is not None and rows.thinning is not None:
            return self._set_rows(rows, level or 0, of)
        _, standing_query = self._core.standing_query(name)
        query, plan = standing_query.state.query, standing_query.state.plan
        parts = synopses_of(query, plan, of)
        self._change_levels(name, dict.fromkeys(parts, level or 0), forced=level is not None)
        share = "what load leaves" if level is None else share_text(level)
        if not of:
            return f"query {name} reads {share} of the tuples"
        outputs = ", ".join(outputs_of(query, plan, parts))
        return f"{outputs} of query {name} read {share} of the tuples"

    def _set_rows(self, query: RowQuery, level: int, of: Sequence[Expression]) -> str:
        if of:
            raise BadQuery(
                f"query {query.name!r} returns rows, which are kept by key: leave FOR away"
            )
        if level > LEVEL_MAX:
            raise BadSetting(
                f"SET THINNING 1/{1 << level}: a row query keeps 1/{1 << LEVEL_MAX} of its keys "
                "or more"
            )

        def change() -> None:
            self._core.rows.settle(query)
            query.thinned.set_level_min(level)

        self._lifetime.check_open()
        with self._ddl:
            self._core.executor.call(change, urgent=True).result()
        kept = f"{share_text(level)} of its keys at most" if level else "all keys that find room"
        return f"query {query.name} keeps {kept}"

    def _change_levels(self, name: str, levels: Mapping[int, int], *, forced: bool) -> None:
        self._lifetime.check_open()
        with self._ddl:
            stream, standing_query = self._core.standing_query(name)
            query_state = standing_query.state
            changed = with_levels(query_state.levels, levels)
            kept = query_state.forced | set(levels) if forced else query_state.forced - set(levels)
            change_levels(self._core, stream, name, changed, kept)
