"""Places for calls: how many may be in flight at once, and that no tenant takes all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shedder.errors import Overloaded

TIMES = 3  # A tenant may have so many times as many places as are free: three quarters, alone.


class Places:
    """So many for all tenants. Not thread-safe: of one event loop.

    A tenant is let in while it has less than TIMES the places that are free. So two that want all
    there are have three sevenths each. Of 4^k places, k tenants that take all they may leave one
    free, and the next tenant is let in. Source: dynamic thresholds, Choudhury & Hahne 1998,
    IEEE/ACM Transactions on Networking 6(2), section II.
    """

    def __init__(self, most: int, what: str) -> None:
        """No call is in flight. what: kind of calls, for messages."""
        self._most = most
        self._what = what
        self._taken: Counter[str] = Counter()

    def take(self, tenant: str) -> None:
        """A tenant has one of them, until it leaves it.

        Raises:
          Overloaded: there is none, or none for this tenant.
        """
        total, mine = self._taken.total(), self._taken[tenant]
        if mine >= TIMES * (self._most - total):
            raise Overloaded(
                f"{total} {self._what} are in flight, {mine} of tenant {tenant!r}; there is room "
                f"for {self._most}, and three quarters at most are one tenant's"
            )
        self._taken[tenant] += 1

    def leave(self, tenant: str) -> None:
        """... which is now."""
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]

    @contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """A tenant has one of them inside. Raises: as `take`."""
        self.take(tenant)
        try:
            yield
        finally:
            self.leave(tenant)
