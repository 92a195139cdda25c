"""When those who are refused may come back: one after the other, and not all at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

RETRY_MS_MIN = 20
SPREAD_S = 5.0  # Later than so long after the first there is no slot: they are given again.


@dataclass(slots=True)
class Slots:
    """until_s: when all who were told to come back will have had their turn."""

    until_s: float = 0.0

    def free(self, now_s: float) -> None:
        """Give all slots again: who had one has not come."""
        self.until_s = now_s

    def next_ms(
        self,
        now_s: float,
        *,
        free_s: float,
        takes_s: float,
        books: bool = True,
        longest_s: float = SPREAD_S,
    ) -> int:
        """When one more may come back.

        Args:
          now_s: of a clock that never goes back.
          free_s: from now until there is room for a first one. takes_s: from then until there is
            room for another one.
          books: whoever comes next gets a later slot.
          longest_s: nobody is told to wait longer than this.

        Returns:
          ms from now, never rounded down: there is room then, if all come when they were told.
        """
        first_s = min(free_s, longest_s)
        wait_s = max(first_s, self.until_s - now_s)
        if wait_s > min(first_s + SPREAD_S, longest_s):
            wait_s = first_s
        if books:
            self.until_s = now_s + wait_s + min(takes_s, longest_s)
        return max(math.ceil(1e3 * wait_s), RETRY_MS_MIN)
