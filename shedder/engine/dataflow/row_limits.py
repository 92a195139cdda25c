"""Limits of memory of standing row queries."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.errors import BudgetExceeded


@dataclass(slots=True)
class RowLimits:
    """Memory of row queries, in bytes.

    query_bytes_max: of one query's state, without kept rows; a query that exceeds it fails. It
      changes while queries run.
    output_bytes_max: of one query's kept rows; those of one record of the log may have more.
    all_bytes_max: of all row queries together, kept rows included.
    read_bytes_max: of tuples that a restart reads again for one query's kept rows.
    """

    query_bytes_max: int
    output_bytes_max: int
    all_bytes_max: int
    read_bytes_max: int

    def set_query_bytes(self, query_bytes_max: int) -> None:
        """Have another limit of one query's state, for the next steps."""
        self.query_bytes_max = query_bytes_max

    def refusal(self, state_bytes: int) -> BudgetExceeded:
        """Return the error of a query whose state exceeds its limit."""
        return BudgetExceeded(
            f"its state has {state_bytes:,} bytes, row_query_bytes_max is "
            f"{self.query_bytes_max:,}: narrow its window or its WHERE, or raise the setting"
        )
