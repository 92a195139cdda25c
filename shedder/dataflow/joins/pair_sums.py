"""Aggregates over an equi-join that need no pairs: those of which each term is of one side."""

from __future__ import annotations

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.dataflow.joins.match_condition import Keys
from shedder.dataflow.sums.grouped_aggregates import AggregateSpec
from shedder.dataflow.sums.summed_terms import of_pairs


def pair_sums(
    keys: Keys,
    groups: tuple[Expression, ...],
    aggregates: tuple[Aggregate, ...],
    names: tuple[frozenset[str], frozenset[str]],
) -> AggregateSpec | None:
    """The aggregates of a GROUP BY over a join, over all pairs or by the join key.

    names: the columns of the left and the right side.

    Returns:
      None: they need the pairs.
    """
    places = [next((at for at, key in enumerate(keys) if group in key), None) for group in groups]
    found = tuple(at for at in places if at is not None)
    if not keys or not of_pairs(aggregates, names):
        return None
    if groups and (len(found) < len(groups) or sorted(found) != list(range(len(keys)))):
        return None
    ours, theirs = zip(*keys, strict=True)
    return AggregateSpec((ours, theirs), found, aggregates, names)
