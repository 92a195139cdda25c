"""Retry times of refused calls: one slot after the other, so that they do not all retry at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

RETRY_MS_MIN = 20
SPREAD_S = 5.0  # Later than so long after the first there is no slot: they are given again.


@dataclass(slots=True)
class Slots:
    """until_s: end of the last slot that was given; s of the caller's clock."""

    until_s: float = 0.0

    def free(self, now_s: float) -> None:
        """Give all slots again: callers that had one have not come."""
        self.until_s = now_s

    def next_ms(
        self,
        now_s: float,
        *,
        free_s: float,
        takes_s: float,
        reserve: bool = True,
        longest_s: float = SPREAD_S,
    ) -> int:
        """Return when one more caller may retry.

        Args:
          now_s: time of a clock that never goes back.
          free_s: time from now until there is room for the first caller.
          takes_s: time from then until there is room for the next one.
          reserve: reserve the slot, so that the next caller gets a later one.
          longest_s: longest wait that is returned.

        Returns:
          ms from now, never rounded down. There is room then if all callers keep their slots.
        """
        first_s = min(free_s, longest_s)
        wait_s = max(first_s, self.until_s - now_s)
        if wait_s > min(first_s + SPREAD_S, longest_s):
            wait_s = first_s
        if reserve:
            self.until_s = now_s + wait_s + min(takes_s, longest_s)
        return max(math.ceil(1e3 * wait_s), RETRY_MS_MIN)
