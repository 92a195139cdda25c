"""EXPLAIN PRECISION of a standing query: the parts of the intervals of its present answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from shedder.cql.expressions.expression import Aggregate
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.queries.answers.precision_table import precision_table
from shedder.queries.evidence.precision_parts import WidthPrices, interval_parts

_HELD: Final = "a KiB: the sketch holds all values that were read"


def precision_of(
    stream: Stream, standing_query: StandingQuery, prices: Mapping[Aggregate, WidthPrices]
) -> pa.Table:
    """Return the parts of each value of the present answer. On the apply thread.

    The answer becomes the newest one: `answer` returns the intervals that the table has.

    prices: of each aggregate.

    Raises:
      InternalError: the query has failed.
    """
    steps = standing_query.explained_steps(stream.facts())
    thinned = {each for each, names in steps[0].parts.items() if names == ("thinning",)}
    own = {each: _of_thinning(it) if each in thinned else it for each, it in prices.items()}
    return precision_table(*interval_parts(standing_query.state.query, steps, own))


def _of_thinning(price: WidthPrices) -> WidthPrices:
    """The prices of a width that comes from skipped tuples alone: bytes take nothing away."""
    if price.per_kib is None:
        return price
    return replace(price, per_kib=None, reason=f"{_HELD}; {price.reason}")
