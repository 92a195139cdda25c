"""Neyman allocation of sample rows to strata, with a floor and with ceilings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synopses.model.errors import BadParameter

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_ROUNDS = 64  # Each but the last fills a stratum to its ceiling; more strata are rounded off.


def neyman(
    rows: int,
    *,
    population: Integers,
    deviation: Floats,
    most: Integers,
    floor_share: float,
) -> Integers:
    """Sizes n_h in proportion to N_h s_h, of which the total has the least variance.

    That alone would give small strata nothing, and each is asked about: `floor_share` of the rows
    are dealt out evenly first. What strata cannot take, for they have not so many rows, goes to the
    others. Where no deviation is known to be above 0, sizes are in proportion to N_h.
    Source: Neyman 1934, JRSS 97(4); the even part is that of congressional samples (Acharya,
    Gibbons, Poosala 2000, SIGMOD).

    Args:
      rows: to be kept in all, >= 0.
      population: int64 [strata], N_h. deviation: float64 [strata], >= 0, of one tuple.
      most: int64 [strata], what each can take, >= 0.
      floor_share: of the rows that are dealt out evenly, in [0, 1].

    Returns:
      sizes: int64 [strata], <= most; their sum is at most `rows`, and that less a row per stratum
      at least where `most` allows it.
    """
    if not 0.0 <= floor_share <= 1.0:
        raise BadParameter("floor_share", floor_share, "0 to 1")
    ceilings = most.astype(np.float64)
    even = _filled(floor_share * rows, (most > 0).astype(np.float64), ceilings)
    weight = population * deviation
    if not weight.any():
        weight = population.astype(np.float64)
    sizes = even + _filled(rows - even.sum(), weight, ceilings - even)
    # Strata without weight get the rows that the others could not take.
    sizes += _filled(rows - sizes.sum(), (most > 0).astype(np.float64), ceilings - sizes)
    return np.floor(sizes + 1e-9).astype(np.int64)


def _filled(rows: float, weight: Floats, most: Floats) -> Floats:
    """Shares of `rows` in proportion to the weights, no share above its ceiling."""
    shares = np.zeros(len(weight))
    open_ = (weight > 0) & (most > 0)
    for _ in range(_ROUNDS):
        left = rows - shares.sum()
        if left <= 0 or not open_.any():
            break
        wanted = left * weight[open_] / weight[open_].sum()
        full = wanted >= most[open_]
        at = np.flatnonzero(open_)
        if not full.any():
            shares[at] = wanted
            break
        shares[at[full]] = most[at[full]]
        open_[at[full]] = False
    return shares
