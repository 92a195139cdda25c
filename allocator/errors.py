"""Errors that the allocator raises."""

from __future__ import annotations

import math


class AllocatorError(ValueError):
    """The root of the allocator's errors."""


class NothingFits(AllocatorError):
    """No choice of options fits: not even the least of each, or not both resources at once."""

    def __init__(
        self, *, least_bytes: int, budget_bytes: int, least_ns: float, budget_ns: float
    ) -> None:
        why = f"nothing fits: alone, the least of bytes is {least_bytes:,} of {budget_bytes:,}"
        if budget_ns < math.inf:
            why += f", the least of CPU {least_ns:,.0f} of {budget_ns:,.0f} ns per second"
        super().__init__(why)
        self.least_bytes, self.budget_bytes = least_bytes, budget_bytes
        self.least_ns, self.budget_ns = least_ns, budget_ns


class BadDemand(AllocatorError):
    """A demand has a value that no synopsis can have."""

    def __init__(self, name: str, field: str, rule: str, value: object) -> None:
        super().__init__(f"{name}: {field} must be {rule}, got {value!r}")


class BadBudget(AllocatorError):
    """A budget that is no amount."""

    def __init__(self, field: str, rule: str, value: object) -> None:
        super().__init__(f"budget: {field} must be {rule}, got {value!r}")


class BadCurve(AllocatorError):
    """A precision curve that no synopsis can have."""

    def __init__(self, name: str, rule: str, value: object) -> None:
        super().__init__(f"{name}: its curve must be {rule}, got {value!r}")


class BadPrecision(AllocatorError):
    """A precision, or a statistic of a plan, that none can have."""

    def __init__(self, field: str, rule: str, value: object) -> None:
        super().__init__(f"{field} must be {rule}, got {value!r}")
