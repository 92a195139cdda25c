"""What the allocator refuses."""

from __future__ import annotations


class AllocatorError(ValueError):
    """The root of the allocator's errors."""


class BudgetTooSmall(AllocatorError):
    """The minima alone are more than the budget."""

    def __init__(self, needed_bytes: int, budget_bytes: int) -> None:
        super().__init__(f"the minima need {needed_bytes:,} bytes, the budget is {budget_bytes:,}")
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes


class BadDemand(AllocatorError):
    """A demand has a value that no synopsis can have."""

    def __init__(self, field: str, rule: str, value: object) -> None:
        super().__init__(f"{field} must be {rule}, got {value!r}")
