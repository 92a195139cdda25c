"""Steps of an operation: the exchanges with a server, apart from how they are carried out.

An operation is a generator. It yields one step after the other, receives each outcome, and returns
its result. `Connection` and `AsyncConnection` perform the same operations, one by blocking calls
and one on an event loop. Errors of a step are raised in the generator, at its `yield`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from shedder.client.failures import Patience
from shedder.client.stubs import Stubs
from shedder.errors import ShedderError

Result = TypeVar("Result")
Method: TypeAlias = Callable[[Stubs], Any]


class OpenCall(Protocol):
    """A call whose responses stream."""

    def cancel(self) -> object:
        """End the call at once; a second time does nothing."""


@dataclass(frozen=True, slots=True)
class UnaryCall:
    """One request and its response, which is the outcome.

    Raises in the generator:
      ShedderError: as the server raised it, or Unreachable.
    """

    method: Method
    request: Any
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a call whose responses stream; the outcome is its `OpenCall`.

    request: the only request; None: `Write` sends requests.
    awaits_start: the step ends when the server has accepted or refused the call; the next `Read`
      raises a refusal.
    """

    method: Method
    request: Any = None
    timeout_s: float | None = None
    awaits_start: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """The next response of an open call; the outcome is None at its end.

    Raises in the generator:
      ShedderError: as the server raised it, or Unreachable.
    """

    call: OpenCall


@dataclass(frozen=True, slots=True)
class Write:
    """Send one request of an open call.

    Raises in the generator:
      ShedderError: why the call has ended. A blocking call says so at the next `Read`.
    """

    call: OpenCall
    request: Any


@dataclass(frozen=True, slots=True)
class Delay:
    """Let a time pass, in seconds."""

    time_s: float


Step: TypeAlias = UnaryCall | Open | Read | Write | Delay
Steps: TypeAlias = Generator[Step, Any, Result]


def call(method: Method, request: Any, timeout_s: float | None = None) -> Steps[Any]:
    """Send one request and return its response."""
    return (yield UnaryCall(method, request, timeout_s))


def retried(work: Callable[[], Steps[Result]], patience: Patience) -> Steps[Result]:
    """Repeat work until it succeeds or the patience ends; only for work that may be repeated.

    Raises:
      ShedderError: of the last try.
    """
    while True:
        try:
            return (yield from work())
        except ShedderError as error:
            wait_s = patience.wait_s(error)
        yield Delay(wait_s)


def retried_call(method: Method, request: Any, patience_s: float) -> Steps[Any]:
    """Send a request that may be repeated, until it succeeds or the patience ends."""
    return (yield from retried(lambda: call(method, request), Patience(patience_s)))
