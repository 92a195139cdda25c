"""Precision curves as tables of options: sizes times shares of the stream that are read."""

from __future__ import annotations

import warnings

import numpy as np

from allocator.demands import BYTES_END, Floats, Integers, Options
from allocator.errors import BadCurve, BadDemand

_STEPS_MAX = 0.01  # a rise of an error of at most this share is noise of a measurement


class CurveRepaired(UserWarning):
    """A curve rose a little where it must not; the warning says whose."""


def falling(name: str, error: Floats) -> Floats:
    """An error curve over growing sizes, [k] or [k, levels], without its rises.

    More bytes never hurt, because a synopsis may leave them unused; so a rise is a measurement's
    noise, and the curve is lowered to the least error so far.

    Raises:
      BadCurve: an error is NaN or negative, or rises by more than noise explains: then the caller
        has mixed something up.
    """
    bad = ~(error >= 0)
    if bad.any():
        raise BadCurve(name, ">= 0", float(error[bad][0]))
    least = np.minimum.accumulate(error)
    rises = error > least
    if rises.any():
        if (error > least * (1 + _STEPS_MAX)).any():
            raise BadCurve(name, "falling in bytes", error.tolist())
        low, high = float(least[rises][0]), float(error[rises][0])
        warnings.warn(
            f"{name}: its error rises from {low:g} to {high:g}; taken as {low:g}",
            CurveRepaired,
            stacklevel=2,
        )
    return least


def thinned(error: Floats, skipped: Floats) -> Floats:
    """Errors of sizes, [k], with the errors of skipping, [levels], as [k, levels].

    A synopsis errs by what it forgets and by what it did not read. Both are deviations of the
    same estimate and independent, so their squares add.
    """
    squares = np.square(error)[:, None] + np.square(skipped)[None, :]
    return np.asarray(np.sqrt(squares), np.float64)


def bound_by_panes(error: Floats | np.float64, coarsest: float) -> Floats | np.float64:
    """Errors of options while a window still holds panes of an earlier, coarser one.

    A new size acts on new panes; until the old ones have left, the window errs as they do.
    """
    return np.maximum(error, coarsest)


def table(
    names: list[str],
    sizes: list[Integers],
    costs: list[Floats],
    errors: list[Floats],
) -> Options:
    """Options of synopses with different numbers of them.

    Args:
      names: [n].
      sizes: per synopsis int64 [k], bytes.
      costs: per synopsis float64 [levels], ns per second of stream at each share that is read.
      errors: per synopsis float64 [k, levels].

    Returns:
      options [n, the largest k * levels]; option (i, j) of a synopsis is at i * levels + j.

    Raises:
      BadDemand: a value that no synopsis can have. BadCurve: as `falling`; sizes ascend or not.
    """
    width = max((error.size for error in errors), default=0)
    size_bytes = np.zeros((len(names), width), np.int64)
    cost_ns = np.zeros((len(names), width))
    error_of = np.full((len(names), width), np.inf)
    for row, (size, cost, error) in enumerate(zip(sizes, costs, errors, strict=True)):
        assert error.shape == (len(size), len(cost))
        if np.asarray(size).dtype.kind not in "iu":
            raise BadDemand(names[row], "size_bytes", "whole numbers", np.asarray(size).tolist())
        order = np.argsort(size, kind="stable")
        error_of[row, : error.size] = _fallen(names[row], error, order).ravel()
        largest = max(map(int, size), default=0)
        if largest >= BYTES_END:  # As int64 it would be negative.
            raise BadDemand(names[row], "size_bytes", "below 2^63", largest)
        size_bytes[row, : error.size] = np.repeat(size, len(cost))
        cost_ns[row, : error.size] = np.tile(cost, len(size))
    return Options(names, size_bytes, cost_ns, error_of)


def _fallen(name: str, error: Floats, order: Integers) -> Floats:
    """The errors of sizes, [k, levels], without rises in the order of the sizes."""
    ordered = error[order]
    if (ordered[1:] <= ordered[:-1]).all() or not (error >= 0).all():
        return error  # What is no error at all, Options names.
    fallen = np.empty_like(error)
    fallen[order] = falling(name, ordered)
    return fallen
