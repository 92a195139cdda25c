"""Growth of a bottom-k sample after a cut: how many smallest keys are surely held."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

_RARE: Final = 1e-9  # Probability that a sample holds fewer rows than it is believed to.
_RARE_LOG: Final = math.log(2.0 / _RARE)


def surely_held(
    base: NDArray[np.int64], before: NDArray[np.int64], population: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many smallest keys are held, all but for certain, since the last cut.

    A sample that was cut to n rows at M tuples keeps all later rows below its threshold t, the
    (n + 1)-th smallest key of M. Of L later tuples at least b are, but with probability 1e-9: t is
    Beta(n + 1, M - n), and the number below t is binomial (Chernoff). The result n + b depends on
    counts alone, so the n + b smallest keys are of a simple random sample of M + L tuples.

    Args:
      base: n, rows that the cut kept; any shape. before: M, tuples at the cut, > n.
      population: M + L, tuples now.
    """
    with np.errstate(invalid="ignore"):
        threshold = betaincinv(base + 1.0, np.maximum(before - base, 1.0), _RARE / 2.0)
    mean = (population - before) * threshold
    later = np.floor(np.maximum(mean - np.sqrt(2.0 * mean * _RARE_LOG), 0.0))
    found: NDArray[np.int64] = base + later.astype(np.int64)
    return found
