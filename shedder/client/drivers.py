"""Performing the steps of an operation, by blocking calls or on an event loop."""

from __future__ import annotations

from typing import Any

from shedder.client.aio_connection import AsyncConnection
from shedder.client.connection import Connection
from shedder.client.steps import Delay, Open, Read, Result, Step, Steps, UnaryCall, Write


def perform(connection: Connection, steps: Steps[Result]) -> Result:
    """Perform the steps of an operation, and return its result.

    An error of a step, KeyboardInterrupt included, is raised in the operation. After Ctrl-C between
    two steps the operation is closed, so it ends its calls.

    Raises:
      ShedderError: as the server raised it, or Unreachable; what else the operation raises.
    """
    try:
        step = next(steps)
        while True:
            try:
                outcome = _outcome(connection, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        steps.close()


async def perform_async(connection: AsyncConnection, steps: Steps[Result]) -> Result:
    """Perform the steps of an operation on the running event loop: as `perform`.

    When the task is cancelled, CancelledError is raised in the operation, which ends its calls.
    """
    try:
        step = next(steps)
        while True:
            try:
                outcome = await _outcome(connection, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: Result = end.value
        return result


def _outcome(connection: Connection | AsyncConnection, step: Step) -> Any:
    """Return the outcome of a step, or what an event loop awaits for it."""
    match step:
        case UnaryCall(method, request, timeout_s):
            return connection.call(method(connection.stubs), request, timeout_s)
        case Open(method, request, timeout_s, awaits_start):
            bound = method(connection.stubs)
            return connection.open(bound, request, timeout_s, awaits_start=awaits_start)
        case Read(call):
            return connection.read(call)  # type: ignore[arg-type]  # opened by this connection
        case Write(call, request):
            return connection.write(call, request)  # type: ignore[arg-type]  # as above
        case Delay(time_s):
            return connection.wait(time_s)
