"""What helps is tried again, what does not is not, and there is an end to it."""

import heapq
import random

import pytest

from shedder.client.failures import Backoff, Patience
from shedder.client.target import ServerTarget
from shedder.errors import BadSetting, Draining, Overloaded, SequenceGap, Unreachable
from shedder.overload.admission_rate import Door


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def waits_of(error, seconds):
    """All waits, until the patience ends."""
    clock = Clock()
    patience, waits = Patience(seconds, clock), []

    def wait_until_it_ends():
        while True:
            waits.append(patience.wait_s(error))
            clock.now += waits[-1]

    with pytest.raises(type(error)):
        wait_until_it_ends()
    assert clock.now <= seconds
    return waits


def test_nobody_comes_before_the_time_that_the_server_gave_and_each_a_little_later():
    waits = waits_of(Overloaded("full", retry_after_ms=100), 20.0)
    assert len(waits) > 20.0 / 0.14 - 2
    for number, wait_s in enumerate(waits):
        assert 0.1 <= wait_s <= 0.1 * (1 + 0.05 * min(2**number, 8)) + 1e-12
    assert len(set(waits)) > 1
    (wait_s,) = waits_of(Overloaded("full", retry_after_ms=65_000), 100.0)  # However long that is.
    assert 65.0 <= wait_s <= 65.0 * 1.05


def test_where_nobody_gives_a_time_waits_get_longer_up_to_eight_times():
    for number, wait_s in enumerate(waits_of(Unreachable("gone"), 30.0)):
        least = 0.25 * min(2**number, 8)
        assert least <= wait_s <= 1.05 * least


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clients", [2, 10])
def test_clients_of_one_held_door_take_turns(seed, clients):
    """Each has its share of what is let in, and hardly one is refused in vain."""
    uniform = random.Random(seed).uniform
    door, events = Door(), [(0.001 * client, client) for client in range(clients)]
    door.hold(1e6, {"s": 1.0}, 0.0, 0.1)
    came, refused, backoffs = [0] * clients, 0, [Backoff(uniform) for _ in range(clients)]
    while events[0][0] < 60.0:
        now_s, client = heapq.heappop(events)
        error = Overloaded("full", retry_after_ms=door.wait_ms("s", 100_000, now_s))
        if error.retry_after_ms:
            refused += 1
            heapq.heappush(events, (now_s + backoffs[client].wait_s(error), client))
        else:
            came[client] += 1
            backoffs[client] = Backoff(uniform)
            heapq.heappush(events, (now_s + 0.001, client))
    assert sum(came) >= 0.95 * 600
    assert max(came) <= 1.2 * min(came)
    assert refused <= 1.2 * sum(came)


@pytest.mark.parametrize("error", [Unreachable("gone"), Draining("stopping")])
def test_a_server_that_is_gone_may_come_back(error):
    assert Patience(10.0, Clock()).wait_s(error) > 0
    with pytest.raises(type(error)):
        Patience(0.0, Clock()).wait_s(error)


def test_what_does_not_get_better_is_not_tried_again():
    with pytest.raises(SequenceGap):
        Patience(10.0).wait_s(SequenceGap("p", 3, 5))


def target(address, **options):
    given = dict.fromkeys(("token", "ca", "cert", "key", "insecure")) | options
    return ServerTarget.of(address, **given)


def test_plain_text_is_for_this_machine_unless_asked_for():
    assert target("localhost").credentials is None
    assert target("localhost", insecure=False).credentials is not None
    assert target("example.com").credentials is not None
    assert target("example.com", insecure=True).credentials is None


def test_a_token_makes_tls_and_is_never_sent_in_plain_text():
    assert target("localhost", token="t").credentials is not None
    assert target("localhost", token="t").metadata == (("authorization", "Bearer t"),)
    with pytest.raises(BadSetting, match="plain text"):
        target("localhost", token="t", insecure=True)


@pytest.mark.parametrize(
    "options",
    [{"cert": b"c"}, {"key": b"k"}, {"ca": "/nowhere/ca.pem"}, {"token": "a\nb"}, {"token": "é"}],
)
def test_credentials_that_cannot_be_used_are_refused(options):
    with pytest.raises(BadSetting):
        target("example.com", **options)
