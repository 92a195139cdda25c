"""The answers of a replay against the rules of Linear Road."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from examples.linear_road.replay import RoadAnswers
from examples.linear_road.rules import Expected

Bag = Counter[tuple[object, ...]]


def wrong(answers: Sequence[RoadAnswers], expected: Expected) -> int:
    """Return how many answers are missing, or should not be there.

    answers: of all steps of the time that `expected` is of.
    """
    tolls = ((each.ts_us, each.vid, each.seg, each.lav, each.toll) for each in expected.tolls)
    accidents = ((each.ts_us, each.vid, each.seg, each.accident) for each in expected.accidents)
    balances = [(row[1], row[3]) for row in _rows([each.balances for each in answers])]
    return (
        _differences(_rows([each.tolls for each in answers]), Counter(tolls))
        + _differences(_rows([each.accidents for each in answers]), Counter(accidents))
        + _differences(Counter(balances), Counter(expected.balances.items()))
    )


def _rows(tables: list[pa.Table]) -> Bag:
    """Return rows as (microseconds, columns without `_ts` and `_sign` …)."""
    table = pa.concat_tables(tables)
    times = table["_ts"].cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in table.column_names[:-2]]
    return Counter(zip(times, *columns, strict=True))


def _differences(got: Bag, truth: Bag) -> int:
    return ((got - truth) + (truth - got)).total()
