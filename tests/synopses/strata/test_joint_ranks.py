"""Ranks over strata by one test, against every sample that can be drawn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln

from synopses.strata.joint_ranks import joint_ranks

DESIGNS = (
    ((200, 40), (14, 20)),
    ((60, 60), (12, 18)),
    ((400, 50), (25, 5)),
    ((40, 40), (35, 12)),
    ((300, 300), (16, 16)),
)


def _choose(n: NDArray[np.int64], k: NDArray[np.int64]) -> NDArray[np.float64]:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _chances(size: int, read: int, there: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of all samples of a stratum with so many values below the edge, above it, and of others.

    Returns: float64 [read + 1, read + 1], by how many are below and above.
    """
    below, above = np.meshgrid(np.arange(read + 1), np.arange(read + 1), indexing="ij")
    drawn = np.stack([below, above, read - below - above])
    all_there = np.array([*there, size - there.sum()])[:, None, None]
    possible = ((drawn >= 0) & (drawn <= all_there)).all(axis=0)
    safe = np.clip(drawn, 0, all_there)
    logs = _choose(all_there, safe).sum(axis=0) - _choose(np.array(size), np.array(read))
    return np.where(possible, np.exp(logs), 0.0)


def _at_the_limit(
    rng: np.random.Generator, sizes: tuple[int, int], share: float, least: bool
) -> NDArray[np.int64]:
    """How many of a group are below and above an edge, in each stratum: [strata, 2].

    In all, as many are below as make it just the quantile (least), or just one before it.
    """
    members = np.array([rng.integers(1, size + 1) for size in sizes])
    total = int(np.ceil(share * members.sum() - 1e-9)) - (not least)
    first = int(rng.integers(max(0, total - members[1]), min(members[0], total) + 1))
    below = np.array([first, total - first])
    return np.stack([below, members - below], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "reads"), DESIGNS)
def test_no_edge_is_left_out_wrongly_more_often_than_half_of_delta(
    sizes: tuple[int, int], reads: tuple[int, int]
) -> None:
    """Exact probabilities: of a group among others, of all groups' shares in the strata."""
    grids = np.meshgrid(*(np.arange(n + 1) for n in (reads[0], reads[0], reads[1], reads[1])),
                        indexing="ij")  # fmt: skip
    first, second = (np.stack(grids[at : at + 2]).reshape(2, -1) for at in (0, 2))
    # Two edges: values below, and all values.
    edges = np.stack([first, second])
    below = np.stack([edges[:, 0], edges.sum(axis=1)], axis=2).reshape(2, -1).astype(np.float64)
    starts = np.arange(0, below.shape[1] + 1, 2)
    rng, shape = np.random.default_rng(3), grids[0].shape
    for share in (0.5, 0.75):
        for confidence in (0.68, 0.95):
            low, high = joint_ranks(
                np.array(sizes, np.float64), np.array(reads, np.float64), starts=starts,
                below=below, rank_share=share, confidence=confidence,
            )  # fmt: skip
            assert (low >= 0).mean() > 0.05
            for least, refuted in ((True, low >= 2), (False, (low >= 0) & (high <= 1))):
                for _ in range(30):
                    there = _at_the_limit(rng, sizes, share, least)
                    chances = [_chances(*each) for each in zip(sizes, reads, there, strict=True)]
                    missed = np.einsum("abcd,ab,cd->", refuted.reshape(shape), *chances)
                    assert missed <= (1 - confidence) / 2, (share, confidence, least, there)
