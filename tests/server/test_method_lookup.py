"""What waits for calls in a server that finds methods by name: one thing, not one a method."""

from __future__ import annotations

import asyncio

import pytest

from shedder.server.server import Server


async def waiting(engine, settings) -> list[str]:
    """Names of the tasks that wait for calls once the server listens."""
    server = Server(engine, settings)
    before = asyncio.all_tasks()
    await server.start()
    try:
        started = asyncio.all_tasks() - before
        names = [task.get_coro().__qualname__ for task in started]
        return [name for name in names if "_call" in name]
    finally:
        await server.stop(0)


@pytest.mark.parametrize("reflection", [False, True])
def test_one_task_waits_for_calls_whatever_the_number_of_methods(engine, settings, reflection):
    found = asyncio.run(waiting(engine, settings.model_copy(update={"reflection": reflection})))
    assert len(found) == 1 + reflection  # Reflection is gRPC's own, and registers its method.
