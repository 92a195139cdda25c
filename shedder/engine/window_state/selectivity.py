"""Selectivity of a query's WHERE over its most recent tuples."""

from __future__ import annotations

from dataclasses import dataclass

_REMEMBERED = 1 << 18  # Tuples; of twice as many, what came before counts half.


@dataclass(slots=True)
class Selectivity:
    """Counts of the newest tuples. For predictions alone.

    tuples: that were looked at; passed: those of them that passed.
    """

    tuples: int = 0
    passed: int = 0

    def count(self, tuples: int, passed: int) -> None:
        """So many more were looked at, and so many of them passed."""
        self.tuples += tuples
        self.passed += passed
        while self.tuples > 2 * _REMEMBERED:
            self.tuples >>= 1
            self.passed >>= 1

    @property
    def share(self) -> float:
        """In (0, 1]; 1 before anything came: where none passed yet, the next one might."""
        return min((self.passed + 1) / (self.tuples + 1), 1.0)
