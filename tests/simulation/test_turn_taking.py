"""Work that takes turns with the world: it sleeps where it stands, goes on, or dies there."""

from __future__ import annotations

import pytest

from shedder.simulation.disk import Died
from shedder.simulation.turn_taking import Worker


def test_work_stops_in_the_middle_and_goes_on():
    worker, events = Worker(), []

    def work() -> None:
        for step in range(3):
            events.append((step, worker.is_current))
            worker.sleep(10 * (step + 1))

    worker.do(work)
    assert (events, worker.asleep_ns) == ([(0, True)], 10)
    worker.go_on()
    assert (events[-1], worker.asleep_ns) == ((1, True), 20)
    worker.go_on()
    worker.go_on()
    assert worker.asleep_ns is None
    assert not worker.is_current
    worker.end()


def test_errors_come_to_who_waits_and_the_next_work_is_done():
    worker, events = Worker(), []

    def broken() -> None:
        worker.sleep(1)
        raise ValueError("no")

    worker.do(broken)
    with pytest.raises(ValueError, match="no"):
        worker.go_on()
    worker.do(lambda: events.append(1))
    assert events == [1]
    worker.end()


def test_what_sleeps_when_the_process_dies_does_nothing_more():
    worker, events = Worker(), []

    def work() -> None:
        try:
            worker.sleep(1)
            events.append("went on")
        except Died:
            events.append("died")
            raise

    worker.do(work)
    worker.end()
    worker.end()
    assert events == ["died"]
