"""Inputs of kernels: one form, whatever the caller's arrays are like."""

from __future__ import annotations

import numpy as np

from synopses.inputs import as_input


def test_broadcast_arrays_are_taken_without_a_warning() -> None:
    column, _ = np.broadcast_arrays(np.array([7.0]), np.zeros(1))
    taken = as_input(column, np.float64)
    assert taken.tolist() == [7.0]
    assert not taken.flags.writeable


def test_the_callers_array_stays_writeable() -> None:
    mine = np.arange(3)
    assert not as_input(mine, np.int64).flags.writeable
    mine[0] = 5
    assert mine.tolist() == [5, 1, 2]
