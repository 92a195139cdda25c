"""Places for calls in flight, shared among tenants so that no tenant takes all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shedder.errors import Overloaded
from shedder.server.arrival import Wait

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


@dataclass(slots=True, eq=False)
class _Stream:
    """An open call that has a place; `is_ended`: its place was given to another call."""

    tenant: str
    wait: Wait
    is_ended: bool = False


class StreamPlaces:
    """Places for calls that stay open. Calls whose clients are idle give way to new calls.

    idle_s_min: time that a client is waited for, after which its call may be ended; s.
    """

    def __init__(self, most: int, what: str, *, idle_s_min: float) -> None:
        """No call is open. what: kind of calls, for messages."""
        self._places = Places(most, what)
        self._idle_s_min = idle_s_min
        self._streams: list[_Stream] = []  # oldest first

    @contextmanager
    def taken(self, tenant: str, wait: Wait) -> Iterator[None]:
        """Give a tenant a place while the block runs.

        wait: for the call's client.

        Raises:
          Overloaded: there is no place for this tenant, and no call is idle.
        """
        try:
            self._places.take(tenant)
        except Overloaded:
            if not self._end_idlest(tenant):
                raise
            self._places.take(tenant)
        stream = _Stream(tenant, wait)
        self._streams.append(stream)
        try:
            yield
        finally:
            if not stream.is_ended:
                self._leave(stream)

    def _end_idlest(self, tenant: str) -> bool:
        """End the call that is idle longest: of the tenant, else of the one with most calls."""
        idle = [
            stream
            for stream in self._streams
            if stream.wait.is_waiting and stream.wait.waited_s >= self._idle_s_min
        ]
        if not idle:
            return False
        calls = Counter(stream.tenant for stream in self._streams)
        idlest = max(
            idle,
            key=lambda stream: (
                stream.tenant == tenant,
                calls[stream.tenant],
                stream.wait.waited_s,
            ),
        )
        idlest.is_ended = True
        self._leave(idlest)
        idlest.wait.expire()
        return True

    def _leave(self, stream: _Stream) -> None:
        self._streams.remove(stream)
        self._places.leave(stream.tenant)
