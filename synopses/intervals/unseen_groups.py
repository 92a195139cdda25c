"""Missing groups: how large a group can be of which the sample holds no row."""

from __future__ import annotations

import math

import numpy as np

from synopses.model.parameters import error_share


def missing_group_rows(*, population: int, read: int, confidence: float) -> int:
    """The largest number of tuples that a group missing from a uniform sample may have.

    At most N/g groups hold g tuples or more, and one of g tuples is missed with probability at
    most min((1 - g/N)^n, (1 - n/N)^g); so with the asked confidence no group of the returned size
    + 1 or more is missing, all groups at once. (Naming a group beforehand would allow 3 N/n at
    95 %; a group that is not named needs about 10 N/n.)

    Returns: rows in [0, N]; 0 when everything was read.
    """
    log_delta = math.log(error_share(confidence))

    def is_missed(rows: int) -> bool:
        with np.errstate(divide="ignore"):  # Everything read, or a group of all tuples: -inf.
            by_rows = rows * float(np.log1p(-read / population))
            by_reads = read * float(np.log1p(-rows / population)) if read else 0.0
        return math.log(population / rows) + min(by_rows, by_reads) > log_delta

    smallest, largest = 0, population
    while smallest < largest:
        middle = (smallest + largest + 1) // 2
        if is_missed(middle):
            smallest = middle
        else:
            largest = middle - 1
    return smallest
