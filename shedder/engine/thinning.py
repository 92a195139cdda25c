"""Levels: which synopses may be read thinned, and how their shares are said."""

from __future__ import annotations

from collections.abc import Sequence

from shedder.cql.expression import SET_FUNCTIONS, AggregateFunction
from shedder.cql.shares import LEVEL_MAX, share_text
from shedder.engine.standing import Standing
from shedder.errors import BadSetting, Unimplemented

# What has an interval, or says with a reason that it has none, when tuples are skipped.
_FUNCTIONS = frozenset(
    {
        AggregateFunction.COUNT,
        AggregateFunction.SUM,
        AggregateFunction.AVG,
        AggregateFunction.MIN,
        AggregateFunction.MAX,
        AggregateFunction.VAR,
        AggregateFunction.STDDEV,
        AggregateFunction.COUNT_DISTINCT,
        AggregateFunction.QUANTILE,
        AggregateFunction.TOP,
        *SET_FUNCTIONS,
    }
)
_NAMES = {function.value for function in _FUNCTIONS}


def levels_of(standing: Standing, level: int) -> tuple[int, ...]:
    """The level of each part of a query's plan when all are to be read at one.

    Raises:
      BadSetting: it is no level. Unimplemented: an aggregate cannot be thinned.
    """
    if not 0 <= level <= LEVEL_MAX:
        raise BadSetting(f"level is {level}; it must be 0 to {LEVEL_MAX}")
    whole = sorted({a.function.value for a in standing.query.aggregates} - _NAMES)
    if level and whole:
        raise Unimplemented(
            f"{', '.join(whole)}: not thinned in this version; "
            "a query that asks it reads every tuple"
        )
    return (level,) * len(standing.plan.parts)


def levels_text(levels: Sequence[int]) -> str:
    """The share that all parts read, or that of each."""
    return ", ".join(map(share_text, levels if len(set(levels)) > 1 else levels[:1]))
