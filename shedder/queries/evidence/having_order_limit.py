"""HAVING, ORDER BY and LIMIT over estimates: which groups, in which order, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.statements.statement import OrderKey
from shedder.queries.evidence.arrow_columns import taken
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.value_ranges import Mask, Truth

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The groups of the answer.

    rows: int64, their rows in the evidence, in order; the others row comes last.
    certain: bool per row, or None when nothing was decided: no interval straddles a decision
      about the row. doubtful: how many groups were left out that may belong in.
    """

    rows: Rows
    certain: Mask | None
    doubtful: int


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Ends of an order key per row, float64, so that smaller comes first; NULL is inf."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def decide(groups: Groups, together: Groups, missing_first: float = np.inf) -> Decided:
    """Apply HAVING, ORDER BY and LIMIT to the point estimates; the others row always stays.

    Args:
      groups: with the point estimates.
      together: the same groups with intervals that hold for all of them at once.
      missing_first: the first place that a group can have that is not among them.
    """
    query, others = groups.query, groups.evidence.others
    count = groups.evidence.groups
    if query.having is None and not query.order and query.limit is None:
        rows = np.arange(count)
        return Decided(rows if others is None else _last(rows, others), None, 0)
    kept, sure, possible = _having(groups, together)
    if others is not None:
        kept[others], possible[others] = False, False
    rows = np.flatnonzero(kept)
    rows = rows[_sorted(groups, query.order, rows)]
    certain = sure[rows]
    if query.order:
        competing = np.concatenate([rows, np.flatnonzero(possible & ~kept)])
        certain = certain & _placed(together, competing, len(rows), query.limit, missing_first)
    doubtful = int((possible & ~kept).sum())
    if query.limit is not None and len(rows) > query.limit:
        rows, certain = rows[: query.limit], certain[: query.limit]
    if others is not None:
        rows, certain = np.append(rows, others), np.append(certain, False)
    return Decided(rows, certain, doubtful)


def _last(rows: Rows, row: int) -> Rows:
    return np.append(rows[rows != row], row)


def having_outcomes(groups: Groups) -> Truth:
    """What HAVING can be in each group; TRUE without HAVING."""
    having, count = groups.query.having, groups.evidence.groups
    if having is None:
        return Truth(np.ones(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    found = groups.outcomes(having)
    return found if isinstance(found, Truth) else Truth.unknown(count)


def _having(groups: Groups, together: Groups) -> tuple[Mask, Mask, Mask]:
    """Kept at the point estimates; kept or not for certain; possibly kept."""
    having = groups.query.having
    everything = np.ones(groups.evidence.groups, np.bool_)
    if having is None:
        return everything, everything, everything.copy()
    point = groups.evaluate(having).fill_null(False)
    kept = np.array(point.to_numpy(zero_copy_only=False), np.bool_)
    if groups.is_certain(having):
        return kept, everything, kept.copy()
    truth = having_outcomes(together)
    sure = ~(truth.true & (truth.false | truth.null))
    return kept, sure, truth.true | kept


def _sorted(groups: Groups, order: tuple[OrderKey, ...], rows: Rows) -> Rows:
    """The order of these rows by the keys' point estimates, nulls last, stable."""
    if not order:
        return np.arange(len(rows))
    columns: list[pa.Array[Any]] = []
    keys: list[tuple[str, Literal["ascending", "descending"]]] = []
    for at, key in enumerate(order):
        values = taken(groups.evaluate(key.expression), rows)
        nulls = values.is_null()
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        columns += [nulls.cast(pa.uint8()), values]
        keys.append((f"n{at}", "ascending"))
        keys.append((f"v{at}", "descending" if key.descending else "ascending"))
    table = pa.table(columns, names=[name for name, _ in keys])
    found: Rows = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)
    return found


def _placed(
    groups: Groups, competing: Rows, count: int, limit: int | None, missing_first: float
) -> Mask:
    """Return whether each of the first `count` rows certainly belongs where it is.

    With a limit: that it is among the first `limit`, whatever groups are missing. Without: that
    no other row's interval overlaps its own. Decided on the first key; when any key is inexact,
    equal intervals of width zero are left to the other keys.
    """
    order = groups.query.order
    keys = first_key(groups, order[0], competing)
    low, high = keys.low, keys.high
    unrivalled = high[:count] < missing_first
    if all(groups.is_certain(key.expression) for key in order) and len(competing) == count:
        return unrivalled if limit is not None else np.ones(count, np.bool_)
    after = len(low) - np.searchsorted(np.sort(low), high[:count], side="right")
    before = np.searchsorted(np.sort(high), low[:count], side="left")
    ties, ties_after = _ties(low, high)
    if limit is None:
        placed: Mask = len(low) - 1 - after - before - ties[:count] == 0
        return placed
    inside: Mask = (len(low) - 1 - after - ties_after[:count] < limit) & unrivalled
    outside: Mask = before + (ties - ties_after)[:count] >= limit
    return np.where(np.arange(count) < limit, inside, outside)


def first_key(groups: Groups, key: OrderKey, rows: Rows) -> Keys:
    """What the key can be, so that smaller comes first; NULL is infinity.

    Text that is known is replaced by its rank.
    """
    found = groups.outcomes(key.expression)
    if found is None:
        ranks = pc.rank(groups.evaluate(key.expression), sort_keys="ascending", tiebreaker="min")
        low = high = ranks.to_numpy().astype(np.float64)
    else:
        ranged = found.as_range() if isinstance(found, Truth) else found
        low, high = ranged.ends(np.nan, np.nan)
    if key.descending:
        low, high = -high, -low
    if found is not None:
        low = np.where(ranged.value, low, np.inf)
        high = np.where(ranged.value & ~ranged.null, high, np.inf)
    return Keys(low[rows], high[rows])


def _ties(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Rows, Rows]:
    """For rows of width zero: how many others have the same value; how many of them come after."""
    same, after = np.zeros(len(low), np.int64), np.zeros(len(low), np.int64)
    points = np.flatnonzero(low == high)
    if not len(points):
        return same, after
    _, which, counts = np.unique(low[points], return_inverse=True, return_counts=True)
    order = np.argsort(which, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank = np.empty(len(points), np.int64)
    rank[order] = np.arange(len(points)) - np.repeat(first, counts)
    same[points] = counts[which] - 1
    after[points] = counts[which] - 1 - rank
    return same, after
