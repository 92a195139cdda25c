"""Weights of queries' errors against each other, with inactive queries near zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shedder.engine.standing_queries.stream_state import Stream

NEGLIGIBLE = 1e-6
"""Of the lightest active query's weight that all have together which are not active."""


def present_weights(queries: Sequence[tuple[float, bool]]) -> list[float]:
    """What errors of queries count now.

    Those that are not active are as heavy among themselves as they were, and all of them together
    are negligible beside the lightest that is.

    Args:
      queries: the weight of each, and whether it is active.
    """
    lightest = min((weight for weight, active in queries if active), default=1.0)
    idle = sum(weight for weight, active in queries if not active)
    return [
        weight if active else NEGLIGIBLE * lightest * (weight / idle) for weight, active in queries
    ]


def weights_by_query(streams: Iterable[Stream]) -> dict[str, float]:
    """The present weights of all queries of some streams, by name."""
    queries = [
        standing_query for stream in streams for standing_query in list(stream.queries.values())
    ]
    weights = present_weights([(each.weight, each.active) for each in queries])
    return {each.state.name: of for each, of in zip(queries, weights, strict=True)}
