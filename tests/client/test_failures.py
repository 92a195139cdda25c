"""What helps is tried again, what does not is not, and there is an end to it."""

import pytest

from shedder.client.failures import Patience
from shedder.client.target import Target
from shedder.errors import BadSetting, Draining, Overloaded, SequenceGap, Unreachable


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_waits_get_longer_up_to_eight_times_and_end_with_the_patience():
    clock = Clock()
    patience = Patience(10.0, clock)
    error = Overloaded("full")
    error.retry_after_ms = 100
    waits = []

    def wait_until_it_ends():
        while True:
            waits.append(patience.wait_s(error))
            clock.now += waits[-1]

    with pytest.raises(Overloaded):
        wait_until_it_ends()
    for number, wait_s in enumerate(waits):
        longest = 0.1 * min(2**number, 8)
        assert longest / 2 <= wait_s <= longest
    assert 9.2 <= clock.now <= 10.0


@pytest.mark.parametrize("error", [Unreachable("gone"), Draining("stopping")])
def test_a_server_that_is_gone_may_come_back(error):
    assert Patience(10.0).wait_s(error) > 0
    with pytest.raises(type(error)):
        Patience(0.0).wait_s(error)


def test_what_does_not_get_better_is_not_tried_again():
    with pytest.raises(SequenceGap):
        Patience(10.0).wait_s(SequenceGap("p", 3, 5))


def target(address, **options):
    given = dict.fromkeys(("token", "ca", "cert", "key", "insecure")) | options
    return Target.of(address, **given)


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
