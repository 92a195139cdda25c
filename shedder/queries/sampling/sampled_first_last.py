"""FIRST and LAST from a sample: exact from a whole one, else what was seen, without a bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.queries.sampling.interval_columns import SOURCE
from shedder.queries.sampling.sampled_query import Sampled
from shedder.streams.frame import is_text
from shedder.streams.text_first_last import GroupedTextFirstLast
from synopses.model.estimate import Bound, Estimates
from synopses.moments.first_last import GroupedFirstLast

_UNSEEN = "the first or the last value may not be in the sample"


def sampled_by_time(sampled: Sampled, aggregate: Aggregate, _: float) -> Estimates:
    """The first or the last value of each group.

    A sample of everything holds its rows in the order of their positions. Of a part, the value
    that was seen says nothing of one that was not.
    """
    node = aggregate.argument
    assert node is not None, aggregate
    present = sampled.rows.present(node)
    rows = slice(None) if present.rows is None else present.rows
    groups = sampled.groups.count
    ids = sampled.groups.ids[rows].astype(np.int32)
    values: Any = present.values
    ends: Any
    if is_text(node.type):
        ends = GroupedTextFirstLast(groups)
    else:
        ends = GroupedFirstLast(groups, integer=values.dtype == np.int64)
    ends.update(ids, sampled.rows.times_us[rows], sampled.rows.positions[rows], values)
    is_first = aggregate.function is AggregateFunction.FIRST
    found: Estimates = replace(ends.first() if is_first else ends.last(), source=SOURCE)
    if sampled.is_everything:
        return found
    return replace(found, bound=np.full(groups, np.uint8(Bound.NONE)), reason=_UNSEEN)
