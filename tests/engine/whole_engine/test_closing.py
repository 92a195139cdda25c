"""Closing an engine: within a time, and although a service fails to end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from shedder.archive.catalog.catalog import Catalog
from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from tests.engine.flooded import ROWS, Flooded
from tests.engine.query_worlds import CREATE, second


@pytest.mark.slow
@pytest.mark.parametrize("within_s", [0.0, 0.1, 1e6])
def test_what_is_not_applied_in_time_is_applied_at_the_next_start(tmp_path, within_s):
    world = Flooded(tmp_path / "db", overload="off")
    world.send(3)
    world.machine.settle()
    for batches in (30, 4, 6):  # Each of these is durable at once.
        world.send(batches)
    began_s = world.machine.monotonic_s()
    stream = world.engine.core.streams["s"]
    world.engine.close(within_s=within_s)
    applied = stream.applied
    if within_s < 1:
        assert 3 * ROWS <= applied < 43 * ROWS
        assert world.machine.monotonic_s() - began_s < within_s + 0.05
    if within_s:
        assert applied > 3 * ROWS
    again = Flooded(tmp_path / "db", overload="off")
    assert again.engine.ledger("s").applied == 43 * ROWS
    assert again.rows("wide")[0]["n"] == 43 * ROWS
    again.engine.close()


@pytest.mark.slow
def test_a_last_checkpoint_that_takes_too_long_is_left_out(tmp_path):
    world = Flooded(tmp_path / "db", overload="off", checkpoint_seconds=1e6)
    world.send(3)
    world.machine.settle()
    before = checkpoint_of(world)
    world.engine.close(within_s=0.0)
    again = Flooded(tmp_path / "db", overload="off", checkpoint_seconds=1e6)
    assert checkpoint_of(again) == before
    assert again.engine.ledger("s").applied == 3 * ROWS
    again.engine.close()
    again = Flooded(tmp_path / "db", overload="off")
    assert checkpoint_of(again) > before
    again.engine.close()


def checkpoint_of(world: Flooded) -> int:
    catalog: Catalog = world.engine.core.store.catalog
    return catalog.checkpoint_sequence()


class Unstoppable(Environment):
    """A machine whose tickers end, and then fail to say so."""

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        """Return what ends the ticker and raises."""
        end = super().ticker(name, period_s, tick, niceness=niceness)

        def stop() -> None:
            end()
            raise ZeroDivisionError(name)

        return stop


@pytest.mark.slow
def test_a_service_that_fails_to_end_keeps_no_other_from_ending(tmp_path):
    before = set(threading.enumerate())
    db = Engine.open(tmp_path, machine=Unstoppable(), overload="on", audit="on")
    db.execute(CREATE)
    db.push("s", second(0, 10))
    with pytest.raises(ZeroDivisionError):
        db.close()
    assert set(threading.enumerate()) == before
    with Engine.open(tmp_path, overload="off", audit="off") as again:
        assert again.ledger("s").applied == 10
