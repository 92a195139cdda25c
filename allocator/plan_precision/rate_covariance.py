"""Covariance of the numbers of correct and produced tuples, from window to window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.demands import Floats

CORRECT, KEPT, PRODUCED = range(3)
"""Kinds of tuples: the correct ones, those of them that are produced, and all that are produced."""


@dataclass(frozen=True, slots=True, eq=False)
class TuplePairs:
    """Pairs of different tuples of two kinds, beyond what the product of their means says.

    In windows of n correct tuples in the mean, with m[i] tuples of a kind per correct one, there
    are n^2 (m[i] m[j] + together[i, j]) + n alone[i, j] pairs of a tuple of kind i and another one
    of kind j in the mean. All 0 where tuples come and go independently of each other.

    together: float64 [..., 3, 3]; what makes large windows unsteady, too: errors and results that
      come together in large numbers.
    alone: float64 [..., 3, 3]; of tuples that come with a single other one.
    """

    together: Floats
    alone: Floats

    @classmethod
    def one_by_one(cls, recall: Floats, spurious: Floats) -> TuplePairs:
        """Of a correct tuple one or none is kept, with a Poisson number of spurious ones."""
        none = np.zeros(np.broadcast(recall, spurious).shape)
        with_kept, twice = recall * spurious + none, (2.0 * recall + spurious) * spurious + none
        columns = ((none, none, spurious), (none, none, with_kept), (spurious, with_kept, twice))
        alone = np.stack([np.stack(np.broadcast_arrays(*each), -1) for each in columns], -2)
        return cls(np.zeros((3, 3)), alone)

    def covariances(self, means: Floats, shared: Floats, tuples: float) -> Floats:
        """Of the numbers of tuples per correct one, [..., 3, 3].

        Args:
          means: [..., 3]; of each kind, per correct tuple.
          shared: [..., 3, 3]; tuples of both kinds, per correct one: a tuple and itself are a pair.
          tuples: correct ones in a window, > 0.
        """
        assert means.shape[-1] == shared.shape[-1] == 3
        return np.asarray(self.together + (self.alone + shared) / tuples)


def outer(column: Floats) -> Floats:
    """All products of two, [..., 3, 3], of [..., 3]."""
    return np.asarray(column[..., :, None] * column[..., None, :])
