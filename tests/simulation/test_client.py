"""Clients of a world behave as those of the library."""

import numpy as np
import pytest

from shedder.client.failures import LATER, Backoff
from shedder.errors import Draining, Overloaded
from shedder.simulation.client import DOWN_US, pause_us
from shedder.wire.status import retry_after_ms


def pauses_us(retry, hint_us, tries):
    """Yield many pauses for each try."""
    rng = np.random.default_rng(1)
    for number in range(1, tries + 1):
        yield [pause_us(retry, hint_us, number, rng) for _ in range(500)]


def refusal(hint_ms):
    return Overloaded("full", retry_after_ms=hint_ms)


def test_nobody_comes_back_before_the_server_has_said_nor_much_later():
    for tries, pauses in enumerate(pauses_us("backoff", 400_000, 6), 1):
        latest = 400_000 * (1 + LATER * min(2 ** (tries - 1), 8))
        assert min(pauses) >= 400_000
        assert 0.95 * latest < max(pauses) <= latest


@pytest.mark.parametrize("error", [refusal(400), Draining("the server is down")])
def test_pauses_are_those_of_the_library(error):
    """The shortest and longest pause of each try, in units of the first pause without jitter."""
    hint_us = 400_000 if isinstance(error, Overloaded) else None
    pauses = list(pauses_us("backoff", hint_us, 9))
    first_us, first_ms = hint_us or DOWN_US, retry_after_ms(error)
    for end, choose in enumerate((min, max)):
        theirs = Backoff(lambda *ends, end=end: ends[end])
        for each in pauses:
            ratio = 1e3 * theirs.wait_s(error) / first_ms
            assert choose(each) / first_us == pytest.approx(ratio, rel=0.01)


def test_the_greedy_listen_to_nobody():
    assert {pause for [*of] in pauses_us("greedy", 400_000, 3) for pause in of} == {10_000}
