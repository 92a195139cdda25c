"""Translation of failed calls to our errors, and waits before repeatable work is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from shedder.errors import FailedPrecondition, Overloaded, ShedderError, Unreachable
from shedder.wire.status import from_call, retry_after_ms

Result = TypeVar("Result")


def translated(error: grpc.RpcError, address: str) -> ShedderError:
    """Return the error of a failed call, as the server raised it."""
    call: Any = error  # Both kinds of calls have these three; the common base has none.
    return from_call(call.code(), call.details(), call.trailing_metadata(), address)


def closed(address: str) -> FailedPrecondition:
    """Return the error of a call after its client was closed."""
    return FailedPrecondition(f"the client of {address} is closed; connect again")


def without_greeting(error: Unreachable, *, encrypted: bool) -> Unreachable:
    """Explain why no server answered, with a hint if only one side speaks TLS."""
    said = str(error)
    if encrypted and "WRONG_VERSION_NUMBER" in said:
        said += ". It speaks without TLS: leave out token and certificates, or serve with tls_cert"
    elif not encrypted and ("Socket closed" in said or "Connection reset" in said):
        said += ". If it speaks TLS, name the authority that signed its certificate: ca"
    return Unreachable(said)


def deadline_s(timeout_s: float | None) -> float | None:
    """A call's deadline: a little after the server's own, whose error says more."""
    return None if timeout_s is None else timeout_s + 1.0


LONGEST_S = 5.0  # Longest wait, in seconds, if the server gave no time.
LATER = 0.05  # Largest random part of a wait after the first refusal; later up to eight times that.


class Backoff:
    """Wait before each retry, after failures in a row.

    No retry comes before the time that the server gave. Each wait is longer by a random part, which
    grows after each refusal: the server gave the same time to other clients, and they came first.
    If the server gave no time, the wait itself gets longer, up to eight times.
    """

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        """uniform: draws a random number between two limits."""
        self._uniform = uniform
        self._tries = 0

    def wait_s(self, error: ShedderError) -> float:
        """Return how long to wait before the next try.

        Raises:
          error: trying again does not help.
        """
        wait_ms = retry_after_ms(error)
        if wait_ms is None:
            raise error
        longer = min(1 << self._tries, 8)
        self._tries += 1
        least_s = wait_ms / 1000
        if not isinstance(error, Overloaded):
            least_s, longer = max(least_s, min(least_s * longer, LONGEST_S)), 1
        return least_s * self._uniform(1.0, 1.0 + LATER * longer)


class Patience:
    """How long one piece of work may be tried again."""

    def __init__(self, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + total_s
        self._backoff = Backoff()

    def wait_s(self, error: ShedderError) -> float:
        """Return how long to wait before the next try.

        Raises:
          error: trying again does not help, or the patience has an end.
        """
        wait_s = self._backoff.wait_s(error)
        if self._clock() + wait_s > self._until:
            raise error
        return wait_s


def patiently(work: Callable[[], Result], patience: Patience) -> Result:
    """Repeat work until it succeeds or the patience ends; only for work that may be repeated."""
    while True:
        try:
            return work()
        except ShedderError as error:
            wait_s = patience.wait_s(error)
        time.sleep(wait_s)
