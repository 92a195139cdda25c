"""Counts of all keys at once, from samples of rows: how far their vector can be from the truth.

The sizes of joins are products of vectors of counts, one entry per key. Single entries
of unseen keys have no bound, but the whole vector has one. Scaled up from n of N rows, the vector
lies near the true one in Euclidean distance, however many keys there are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from synopses.model.parameters import error_share

Floats = NDArray[np.float64]


def vector_error(read: Floats, population: Floats, *, confidence: float) -> Floats:
    """Bound the Euclidean distance of the vector sum(N_s/n_s r_s) of counts to the true one.

    r_s counts the keys of n_s rows of stratum s, a simple random sample without replacement of its
    N_s. Let h be the distance. E h^2 = sum of (N/n)^2 times the hypergeometric variances of all
    keys, at most n (N - n)/(N - 1) per stratum: so E h <= sqrt(V). Exchanging one row that was
    read for one that was not moves h by sqrt(2) N/n at most, so it exceeds its mean by t with
    probability at most
      exp(-t^2 / sum of (N/n)^2 n (N - n)/((N - 1/2)(1 - 1/(2 max(n, N - n)))));
    strata are drawn one after the other, and their martingale differences are bounded one by one.
    Source: El-Yaniv & Pechyony 2009, JAIR 35, Lemma 2 (McDiarmid's inequality for samples without
    replacement); that the norm of all counts is stable in this sense is ours.

    Args:
      read, population: [strata, groups], n and N of each; 0 <= n <= N.
      confidence: in (0, 1).

    Returns:
      [groups]; infinite where nothing was read of a stratum that is not empty.
    """
    n, size = np.maximum(read, 1.0), np.maximum(population, 1.0)
    left = np.maximum(size - n, 0.0)
    scale = (size / n) ** 2 * n * left
    most = np.maximum(n, left)
    variance = np.where(left > 0, scale / np.maximum(size - 1.0, 1.0), 0.0)
    moves = np.where(left > 0, scale / ((size - 0.5) * (1.0 - 0.5 / most)), 0.0)
    rare = math.log(1.0 / error_share(confidence))
    found: Floats = np.sqrt(variance.sum(axis=0)) + np.sqrt(rare * moves.sum(axis=0))
    unread = ((read < 1.0) & (population > 0.0)).any(axis=0)
    return np.where(unread, np.inf, found)
