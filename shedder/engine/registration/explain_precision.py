"""EXPLAIN PRECISION of a standing query: the parts of the intervals of its present answer."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from shedder.cql.expressions.expression import Aggregate
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.queries.answers.precision_table import precision_table
from shedder.queries.evidence.precision_parts import WidthPrices, interval_parts


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
    return precision_table(*interval_parts(standing_query.state.query, steps, prices))
