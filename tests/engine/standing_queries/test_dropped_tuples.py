"""Evidence of windows that lack tuples dropped by chance, asked at a part of delta."""

from __future__ import annotations

import numpy as np

from shedder.engine.standing_queries.dropped_tuples import Drops
from shedder.queries.sampling.from_sample import evidence_from_sample
from shedder.streams.basics import ColumnBasics
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame
from tests.queries.asking import ask, rows
from tests.queries.sampled import view_of


def test_values_that_are_scaled_to_what_was_dropped_are_so_at_any_part_of_delta():
    """Lists came back unscaled where groups chosen by estimates were asked again."""
    query = ask("domain, TOP(client, 2) AS t, COUNT(*) AS n FROM requests GROUP BY domain")
    data = rows(2_000)
    basics = {name: ColumnBasics.of(data.column(name)) for name in data.schema.names}
    drops = Drops()
    drops.let_in(Frame(data, "ts"))
    drops.add(Dropped(2_000, ((0, 2_000),), basics))
    found = evidence_from_sample(query, view_of(data, 500))
    wide = drops.widen(query, found, basics, by_chance=True)
    assert wide.again is not None
    smaller = wide.again(0.5, query.aggregates)
    for aggregate in query.aggregates:
        values = [each.estimates[aggregate].value for each in (found, wide, smaller)]
        if aggregate.argument is not None:
            values = [
                np.array([item.count for items in column for item in items]) for column in values
            ]
        assert (values[1] > 1.5 * values[0]).any()
        assert values[2].tolist() == values[1].tolist()
