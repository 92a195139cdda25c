"""Ranks over strata by one test, against every sample that can be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln

from synopses.strata.joint_ranks import joint_ranks

# N and n of each stratum: shares from 1/19 to 7/8, tiny strata, half of the rows of each.
DESIGNS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((200, 40), (14, 20)),
    ((60, 60), (12, 18)),
    ((400, 50), (25, 5)),
    ((40, 40), (35, 12)),
    ((300, 300), (16, 16)),
    ((4, 4, 2, 2, 2), (2, 2, 1, 1, 1)),
    ((12, 8, 2), (6, 4, 1)),
    ((8, 8, 4, 4, 4), (2, 2, 1, 1, 1)),
)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _choose(n: Ints, k: Ints) -> Floats:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _drawn(read: int) -> Ints:
    """How many of a stratum's sample are below and above an edge: [states, 2]."""
    both = np.stack(np.meshgrid(*2 * [np.arange(read + 1)], indexing="ij"), axis=2).reshape(-1, 2)
    return both[both.sum(axis=1) <= read]


def _chances(size: int, read: int, there: Ints) -> Floats:
    """Of all samples of a stratum with so many values below the edge, above it, and of others.

    Returns: float64 [states], those of `_drawn`.
    """
    seen = _drawn(read)
    drawn = np.concatenate([seen, read - seen.sum(axis=1, keepdims=True)], axis=1)
    all_there = np.array([*there, size - there.sum()])
    possible = (drawn <= all_there).all(axis=1)
    logs = _choose(all_there, np.minimum(drawn, all_there)).sum(axis=1)
    logs -= _choose(np.array(size), np.array(read))
    return np.where(possible, np.exp(logs), 0.0)


def _at_the_limit(
    rng: np.random.Generator, sizes: tuple[int, ...], share: float, least: bool
) -> Ints:
    """How many of a group are below and above an edge, in each stratum: [strata, 2].

    In all, as many are below as make it just the quantile (least), or just one before it. Every
    third group has all rows.
    """
    members = np.array([rng.integers(1, size + 1) for size in sizes])
    if rng.random() < 1 / 3:
        members = np.array(sizes)
    left = int(np.ceil(share * members.sum() - 1e-9)) - (not least)
    below = np.zeros(len(sizes), np.int64)
    for at, most in enumerate(members):
        least_here = max(0, left - members[at + 1 :].sum())
        below[at] = rng.integers(least_here, min(most, left) + 1)
        left -= below[at]
    return np.stack([below, members - below], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "reads"), DESIGNS)
def test_no_edge_is_left_out_wrongly_more_often_than_half_of_delta(
    sizes: tuple[int, ...], reads: tuple[int, ...]
) -> None:
    """Exact probabilities: of a group among others, of all groups' shares in the strata."""
    states = [_drawn(n) for n in reads]
    grid = np.meshgrid(*(np.arange(len(drawn)) for drawn in states), indexing="ij")
    samples = np.stack([drawn[at.ravel()] for drawn, at in zip(states, grid, strict=True)])
    # Two edges: values below, and all values.
    below = np.cumsum(samples, axis=2).reshape(len(sizes), -1).astype(np.float64)
    starts = np.arange(0, below.shape[1] + 1, 2)
    rng, certified = np.random.default_rng(3), 0
    for share in (0.5, 0.75):
        for confidence in (0.6, 0.68, 0.95):
            low, high = joint_ranks(
                np.array(sizes, np.float64), np.array(reads, np.float64), starts=starts,
                below=below, rank_share=share, confidence=confidence,
            )  # fmt: skip
            certified += (low >= 0).sum()
            assert len(sizes) > 2 or (low >= 0).mean() > 0.05
            for least, refuted in ((True, low >= 2), (False, (low >= 0) & (high <= 1))):
                for _ in range(30):
                    there = _at_the_limit(rng, sizes, share, least)
                    missed = refuted.reshape(grid[0].shape).astype(np.float64)
                    for size, n, own in zip(sizes, reads, there, strict=True):
                        missed = np.tensordot(_chances(size, n, own), missed, axes=(0, 0))
                    most = (1 - confidence) / 2 * (1 + 1e-9)
                    assert missed <= most, (share, confidence, least, there)
    assert certified > 0
