"""Clients of a world behave as those of the library."""

import numpy as np
import pytest

from shedder.client import failures
from shedder.errors import Draining, Overloaded
from shedder.simulation import client
from shedder.simulation.client import Client
from shedder.wire import status
from tests.simulation.worlds import scenario


class Pausing(Client):
    """Of whom only the pauses are looked at."""

    def __init__(self, retry):
        self._group = scenario(
            producers=[{"retry": retry, "arrivals": {"rate": 1.0}}],
        ).producers[0]
        self._rng = np.random.default_rng(1)
        self._tries = 0

    def pauses_us(self, hint_us, tries):
        for self._tries in range(1, tries + 1):
            yield [self._pause_us(hint_us) for _ in range(500)]


def told(hint_ms):
    error = Overloaded("full")
    error.retry_after_ms = hint_ms
    return error


def test_nobody_comes_back_before_the_server_has_said_nor_much_later():
    for tries, pauses in enumerate(Pausing("backoff").pauses_us(400_000, 6), 1):
        latest = 400_000 * (1 + failures.LATER * min(2 ** (tries - 1), 8))
        assert min(pauses) >= 400_000
        assert 0.95 * latest < max(pauses) <= latest


@pytest.mark.parametrize("error", [told(400), Draining("the server is down")])
def test_pauses_are_those_of_the_library(error, monkeypatch):
    """The shortest and the longest, of each try."""
    monkeypatch.setattr(status, "_RETRY_MS", {Draining: client.DOWN_US // 1_000})
    hint_us = 400_000 if isinstance(error, Overloaded) else None
    pauses = list(Pausing("backoff").pauses_us(hint_us, 9))
    for end, choose in enumerate((min, max)):
        monkeypatch.setattr(failures.random, "uniform", lambda *ends, end=end: ends[end])
        theirs = failures.Backoff()
        for each in pauses:
            assert choose(each) == pytest.approx(1e6 * theirs.wait_s(error), rel=0.01)


def test_the_greedy_listen_to_nobody():
    assert {pause for [*of] in Pausing("greedy").pauses_us(400_000, 3) for pause in of} == {10_000}
