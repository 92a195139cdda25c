"""The exact answer from partial aggregates and rows, as SQL for DuckDB.

Integers are summed exactly, doubles with compensation (each partial sum comes with what its
rounding left), and squared distances from the mean by Chan, Golub, LeVeque's rule (1983, Am. Stat.
37(3)), so that the answer differs from the one over all rows by rounding at most.
"""

# No SQL text comes from a caller: names are quoted, constants are typed, the rest is ours.
# ruff: noqa: S608

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.binding.rollup_definition import PartialState, Rollup
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Aggregate, AggregateFunction, Column
from shedder.cql.sql.aggregate_sql import NAN, added
from shedder.cql.sql.duckdb import DuckDb
from shedder.cql.sql.expression_sql import ExpressionSql
from shedder.cql.sql.integer_moments import centred_moment
from shedder.cql.statements.bound_query import BoundQuery
from synopses.model.overflow import SQUARES_MIN

ROWS = "__rows"


def state_name(what: str, column: str) -> str:
    """The column of a rollup's file that holds a state: count, sum, rest, squares, least, most."""
    return f"__{what}_{column}"


@dataclass(frozen=True, slots=True)
class Stretches:
    """A query's [start_us, end_us), and the whole windows in it; None: no such end."""

    start_us: int | None
    end_us: int | None
    whole_start_us: int | None
    whole_end_us: int | None

    @classmethod
    def of(cls, start_us: int | None, end_us: int | None, width_us: int) -> Stretches:
        """The largest stretch of whole windows; empty where start is not before end."""
        whole_start = None if start_us is None else -(-start_us // width_us) * width_us
        whole_end = None if end_us is None else end_us // width_us * width_us
        return cls(start_us, end_us, whole_start, whole_end)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no whole window."""
        start, end = self.whole_start_us, self.whole_end_us
        return start is not None and end is not None and start >= end

    @property
    def edges(self) -> tuple[tuple[int | None, int | None], ...]:
        """What is before and after the whole windows."""
        found: list[tuple[int | None, int | None]] = []
        if self.start_us != self.whole_start_us:
            found.append((self.start_us, self.whole_start_us))
        if self.end_us != self.whole_end_us:
            found.append((self.whole_end_us, self.end_us))
        return tuple(found)


def rollup_sql(
    query: BoundQuery,
    rollup: Rollup,
    stretches: Stretches,
    *,
    rows: str,
    edges: str | None,
    rolled: str | None,
) -> str:
    """The SQL of the exact answer, with the columns of `render.exact_sql`.

    Args:
      query: one that `rollup.answers`.
      rollup: whose files are read.
      stretches: of event time.
      rows: relation of tuples that count all through the query's stretch.
      edges: relation of tuples that count outside of the whole windows only; None: of none.
      rolled: relation of a rollup's files, which count in the whole windows; None: of none.
    """
    return _RollupWriter(query, rollup).sql(stretches, rows, edges, rolled)


class _RollupWriter:
    """The parts of one query's SQL. States of argument i are c (count), s, r, m, l, h."""

    def __init__(self, query: BoundQuery, rollup: Rollup) -> None:
        self._query = query
        self._rollup = rollup
        self._engine = DuckDb()
        self._expressions = ExpressionSql(self._engine)
        found = (part.argument for part in query.aggregates if isinstance(part.argument, Column))
        self._arguments = list(dict.fromkeys(found))
        self._keys = [f"g{index}" for index in range(len(query.groups))]

    def sql(self, stretches: Stretches, rows: str, edges: str | None, rolled: str | None) -> str:
        """Rows become states; all states are added up."""
        read = [self._rows(rows, ((stretches.start_us, stretches.end_us),))]
        if edges is not None:
            read.append(self._rows(edges, stretches.edges))
        whole = ((stretches.whole_start_us, stretches.whole_end_us),)
        by = f" GROUP BY {', '.join(self._keys)}" if self._keys else ""
        states = [
            "count(*) AS n",
            *(s for i in range(len(self._arguments)) for s in self._states(i)),
        ]
        kept = "" if rolled is None else f" UNION ALL {self._rolled(rolled, whole)}"
        within = f"PARTITION BY {', '.join(self._keys)}" if self._keys else ""
        means = [
            f"{self._mean(column, f's{i}', f'c{i}')} AS u{i}"
            for i, column in enumerate(self._arguments)
            if PartialState.SQUARES in self._rollup.kept[column]
        ]
        outputs = [
            f"{self._output(aggregate)} AS a{index}"
            for index, aggregate in enumerate(self._query.aggregates)
        ]
        return (
            f"WITH r AS ({' UNION ALL '.join(read)}), "
            f"p AS (SELECT {_list(self._keys, states)} FROM r{by}{kept}), "
            f"q AS (SELECT {_list(['*'], means)} FROM p WINDOW w AS ({within})) "
            f"SELECT {_list(self._keys, outputs)} FROM q{by}"
        )

    @staticmethod
    def _mean(column: Column, total: str, count: str) -> str:
        """The mean over a group's states; of whole numbers a whole number near it."""
        count = f"nullif(sum({count}) OVER w, 0)"
        if column.type is ColumnType.DOUBLE:
            return f"sum(CAST({total} AS DOUBLE)) OVER w / {count}"
        return f"sum({total}) OVER w // {count}"

    def _rows(self, relation: str, stretches: tuple[tuple[int | None, int | None], ...]) -> str:
        """Groups and arguments of tuples."""
        values = [f"{self._expressions.sql(x)} AS x{i}" for i, x in enumerate(self._arguments)]
        return self._selected(relation, values or ["1 AS one"], stretches)

    def _rolled(self, relation: str, whole: tuple[tuple[int | None, int | None], ...]) -> str:
        """Groups and states of a rollup's files."""
        states = [f"{ROWS} AS n"]
        for i, column in enumerate(self._arguments):
            kept = self._rollup.kept[column]
            is_double = column.type is ColumnType.DOUBLE
            columns = {"c": ("count", True), "s": ("sum", PartialState.SUM in kept)}
            columns["r"] = ("rest", PartialState.SUM in kept and is_double)
            columns |= {
                "m": ("squares", PartialState.SQUARES in kept),
                "l": ("least", PartialState.LEAST in kept),
            }
            columns["h"] = ("most", PartialState.MOST in kept)
            for letter, (what, there) in columns.items():
                name = self._engine.name(state_name(what, column.name)) if there else "NULL"
                if letter == "s" and there and not is_double:
                    name = f"CAST({name} AS HUGEINT)"
                states.append(f"{name} AS {letter}{i}")
        return self._selected(relation, states, whole)

    def _selected(
        self, relation: str, values: list[str], stretches: tuple[tuple[int | None, int | None], ...]
    ) -> str:
        """Groups and values of the rows in any of the stretches that pass WHERE."""
        keys = [f"{self._expressions.sql(g)} AS g{i}" for i, g in enumerate(self._query.groups)]
        conditions = [" OR ".join(f"({self._between(*each)})" for each in stretches)]
        if self._query.where is not None:
            conditions.append(self._expressions.sql(self._query.where))
        where = " AND ".join(f"({each})" for each in conditions)
        return f"SELECT {_list(keys, values)} FROM {self._engine.name(relation)} WHERE {where}"

    def _between(self, start_us: int | None, end_us: int | None) -> str:
        time = self._engine.column(self._rollup.time_column, ColumnType.TIMESTAMP)
        ends = [
            f"{time} {operator} {self._engine.timestamp_constant(us)}"
            for operator, us in ((">=", start_us), ("<", end_us))
            if us is not None
        ]
        return " AND ".join(ends) or "TRUE"

    def _states(self, i: int) -> list[str]:
        """States of rows, as `archive.rolled` keeps them; sums but of DOUBLE are exact."""
        column, x = self._arguments[i], f"x{i}"
        kept = self._rollup.kept[column]
        number = f"CAST({x} AS DOUBLE)"
        total, left = f"CAST(sum({x}) AS HUGEINT)", "NULL"
        if column.type is ColumnType.DOUBLE:
            total = added(x, finite=f"fsum({x})", both=NAN)
            left = f"CASE WHEN isnan(sum({x})) AND isfinite(max(abs({x}))) THEN {NAN} END"
        infinite = f"isinf(max(abs({number})))"
        squares = f"CASE WHEN {infinite} THEN {NAN} ELSE var_pop({number}) * count({x}) END"
        if column.type is not ColumnType.DOUBLE:
            whole = f"CAST({x} AS BIGINT)"
            squares = f"({centred_moment(whole, whole)}) / count({x})"
        return [
            f"count({x}) AS c{i}",
            f"{total if PartialState.SUM in kept else 'NULL'} AS s{i}",
            f"{left if PartialState.SUM in kept else 'NULL'} AS r{i}",
            f"{squares if PartialState.SQUARES in kept else 'NULL'} AS m{i}",
            f"{f'min({x})' if PartialState.LEAST in kept else 'NULL'} AS l{i}",
            f"{f'max({x})' if PartialState.MOST in kept else 'NULL'} AS h{i}",
        ]

    def _output(self, node: Aggregate) -> str:
        """An aggregate out of its states."""
        if node.argument is None:
            return "CAST(coalesce(sum(n), 0) AS BIGINT)"
        assert isinstance(node.argument, Column)
        i = self._arguments.index(node.argument)
        match node.function:
            case AggregateFunction.COUNT:
                return f"CAST(coalesce(sum(c{i}), 0) AS BIGINT)"
            case AggregateFunction.MIN:
                return f"min(l{i})"
            case AggregateFunction.MAX:
                return f"max(h{i})"
            case AggregateFunction.SUM:
                if node.argument.type is not ColumnType.DOUBLE:
                    return f"TRY_CAST(sum(s{i}) AS BIGINT)"
                return self._total(i)
            case AggregateFunction.AVG:
                whole = node.argument.type is not ColumnType.DOUBLE
                total = f"CAST(sum(s{i}) AS DOUBLE)" if whole else self._total(i)
                return f"({total} / nullif(sum(c{i}), 0))"
            case AggregateFunction.VAR:
                return self._variance(i)
            case AggregateFunction.STDDEV:
                return f"sqrt({self._variance(i)})"
        raise AssertionError(node.function)

    @staticmethod
    def _total(i: int) -> str:
        finite = f"fsum(s{i}) + coalesce(fsum(r{i}), 0)"
        lost = f"isnan(coalesce(sum(r{i}), 0)) OR isfinite(max(abs(s{i})))"
        return (
            f"CASE WHEN isfinite(sum(s{i})) THEN {finite} WHEN {lost} THEN {NAN} "
            f"ELSE nullif(sum(s{i}), {NAN}) END"
        )

    def _variance(self, i: int) -> str:
        if self._arguments[i].type is ColumnType.DOUBLE:
            away = f"(CAST(s{i} AS DOUBLE) / nullif(c{i}, 0) - u{i})"
            between = f"coalesce(sum(c{i} * {away} * {away}), 0)"
        else:  # Distances from a whole number, so that DOUBLEs hold them.
            away = f"(CAST(s{i} - c{i} * u{i} AS DOUBLE) / nullif(c{i}, 0))"
            rest = f"sum(c{i} * {away}) * sum(c{i} * {away}) / sum(c{i})"
            between = f"coalesce(greatest(sum(c{i} * {away} * {away}) - {rest}, 0), 0)"
        squares = f"(sum(m{i}) + {between})"
        known = f"{squares} = 0 OR ({squares} >= {SQUARES_MIN!r} AND isfinite({squares}))"
        return (
            f"CASE WHEN sum(c{i}) < 2 OR isnan({squares}) THEN NULL "
            f"WHEN {known} THEN {squares} / (sum(c{i}) - 1) ELSE CAST('Infinity' AS DOUBLE) END"
        )


def _list(*parts: list[str]) -> str:
    return ", ".join(item for part in parts for item in part)
