"""Who gets which bytes: memory granted to synopses so that the weighted error is least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.errors import BadDemand, BudgetTooSmall

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KIB = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """What n synopses want. Error as a function of bytes x is scale * x ** -power.

    minimum_bytes: int64 [n], >= 1; below it the synopsis cannot work.
    target_bytes: float64 [n]; the least that meets its target. At or below the minimum: no target,
      or one that the minimum meets. inf: no size meets it.
    maximum_bytes: float64 [n], >= minimum; more than this buys nothing. inf: no limit.
    weight: float64 [n], > 0; how much an error here counts against one elsewhere.
    scale: float64 [n], >= 0, in the error's unit at one byte; 0 says exact at any size.
    power: float64 [n], > 0; 1/2 for samples and HyperLogLog, 1 for quantile and counter sketches.
    """

    minimum_bytes: Integers
    target_bytes: Floats
    maximum_bytes: Floats
    weight: Floats
    scale: Floats
    power: Floats

    def __len__(self) -> int:
        return len(self.minimum_bytes)

    def __post_init__(self) -> None:
        shapes = {np.shape(column) for column in self._columns().values()}
        assert len(shapes) == 1, shapes
        _require("minimum_bytes", ">= 1", self.minimum_bytes, self.minimum_bytes >= 1)
        _require("target_bytes", "a number", self.target_bytes, ~np.isnan(self.target_bytes))
        _require(
            "maximum_bytes",
            ">= minimum_bytes",
            self.maximum_bytes,
            self.maximum_bytes >= self.minimum_bytes,
        )
        _require("weight", "> 0 and finite", self.weight, _finite(self.weight) & (self.weight > 0))
        _require("scale", ">= 0 and finite", self.scale, _finite(self.scale) & (self.scale >= 0))
        _require("power", "> 0 and finite", self.power, _finite(self.power) & (self.power > 0))

    def _columns(self) -> dict[str, NDArray[np.generic]]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """Who got what, and what more would buy.

    bytes: int64 [n]; minimum_bytes <= bytes <= maximum_bytes, bytes.sum() <= budget.
    met: bool [n]; whether the target (if there is one) is met. False where target_bytes is inf.
    error: float64 [n]; predicted, in each synopsis' own unit.
    saved_per_kib: float64 [n]; by how much one more KiB would lower that error; 0 at the maximum.
    price: the most that one more byte would lower the weighted sum of errors, anywhere.
    free_bytes: what nobody could use.
    """

    bytes: Integers
    met: NDArray[np.bool_]
    error: Floats
    saved_per_kib: Floats
    price: float
    free_bytes: int


def grant(demands: Demands, budget_bytes: int) -> Grant:
    """Share out the budget: minima first, then targets, then where it lowers the error most.

    Targets that do not all fit are met in order of extra bytes per weight, the cheapest first.
    What is left is poured where weight * error falls fastest (water-filling), so that at the end
    no byte would do more good elsewhere.

    Args:
      demands: of n synopses, n >= 0.
      budget_bytes: for all of them together.

    Returns:
      The grant; its fields' docstrings are what the property tests check.

    Raises:
      BudgetTooSmall: the minima alone exceed the budget.
    """
    needed = int(demands.minimum_bytes.sum())
    if needed > budget_bytes:
        raise BudgetTooSmall(needed, budget_bytes)
    floors = _meet_targets(demands, budget_bytes - needed)
    granted = _pour(demands, floors, budget_bytes)
    return _priced(demands, granted, budget_bytes)


def error_at(demands: Demands, size_bytes: NDArray[np.number]) -> Floats:
    """The predicted errors, shape [n], in each synopsis' own unit, at these sizes."""
    error: Floats = demands.scale * np.asarray(size_bytes, np.float64) ** -demands.power
    return error


def _meet_targets(demands: Demands, free_bytes: int) -> Integers:
    """The minima, raised to the target where that fits, the cheapest per weight first."""
    floors = demands.minimum_bytes.astype(np.int64)
    reachable = np.isfinite(demands.target_bytes) & (demands.target_bytes <= demands.maximum_bytes)
    target = np.ceil(np.where(reachable, demands.target_bytes, 0.0)).astype(np.int64)
    extra = np.maximum(target - floors, 0)
    for synopsis in np.argsort(extra / demands.weight, kind="stable"):
        if extra[synopsis] <= free_bytes:
            floors[synopsis] += extra[synopsis]
            free_bytes -= int(extra[synopsis])
    return floors


def _pour(demands: Demands, floors: Integers, budget_bytes: int) -> Integers:
    """Raise all to one level of marginal gain, found by bisection on its logarithm.

    At level g a synopsis holds the x where weight * scale * power * x ** -(power + 1) == g,
    clipped to [floor, maximum]: the condition of Karush, Kuhn and Tucker for a convex sum.
    """
    useful = demands.scale > 0
    if not useful.any():
        return floors
    steepness = np.where(useful, demands.weight * demands.scale * demands.power, 1.0)
    # No size above the budget is ever needed, so inf becomes a number to calculate with.
    ceiling = np.minimum(demands.maximum_bytes, float(budget_bytes))
    ceiling = np.where(useful, np.maximum(np.floor(ceiling), floors), floors)

    def sizes(log_level: float) -> Floats:
        wanted = np.exp(
            np.minimum((np.log(steepness) - log_level) / (demands.power + 1), _LOG_LARGEST)
        )
        return np.clip(wanted, floors, ceiling)

    low, high = _level_range(demands, steepness, ceiling, floors)
    if sizes(low).sum() <= budget_bytes:
        return _whole(sizes(low), ceiling, budget_bytes)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sizes(middle).sum() <= budget_bytes:
            high = middle
        else:
            low = middle
    return _whole(sizes(high), ceiling, budget_bytes)


def _whole(size: Floats, ceiling: Floats, budget_bytes: int) -> Integers:
    """Whole bytes: rounded down, and what that frees goes to the largest remainders."""
    whole = size.astype(np.int64)
    free = budget_bytes - int(whole.sum())
    by_remainder = np.argsort(whole - size, kind="stable")
    takers = by_remainder[whole[by_remainder] + 1 <= ceiling[by_remainder]][:free]
    whole[takers] += 1
    return whole


_LOG_LARGEST = 60.0  # e^60 bytes are more than any memory, and still a finite float64.
_HALVINGS = 100  # A float64 interval is a point after that many.


def _level_range(
    demands: Demands, steepness: Floats, ceiling: Floats, floors: Integers
) -> tuple[float, float]:
    """Logarithms of two levels: all at their ceiling, all at their floor."""
    slope = demands.power + 1
    low = np.log(steepness) - slope * np.log(ceiling)
    high = np.log(steepness) - slope * np.log(floors)
    return float(low.min()) - 1.0, float(high.max()) + 1.0


def _priced(demands: Demands, granted: Integers, budget_bytes: int) -> Grant:
    size = granted.astype(np.float64)
    room = np.minimum(size + _KIB, demands.maximum_bytes)
    error = error_at(demands, size)
    slope = demands.weight * demands.power * error / size
    slope[size >= demands.maximum_bytes] = 0.0
    return Grant(
        bytes=granted,
        met=size >= demands.target_bytes,
        error=error,
        saved_per_kib=error - error_at(demands, room),
        price=float(slope.max(initial=0.0)),
        free_bytes=int(budget_bytes - granted.sum()),
    )


def _finite(column: Floats) -> NDArray[np.bool_]:
    return np.isfinite(column)


def _require(field: str, rule: str, column: NDArray[np.generic], good: NDArray[np.bool_]) -> None:
    if not good.all():
        raise BadDemand(field, rule, column[~good][0].item())
