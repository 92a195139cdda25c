"""Laws of the token bucket: what comes at most, when the next may come, and what is given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.overload.token_bucket import TokenBucket

RATES = st.floats(1e-2, 1e6)
PAUSES_S = st.floats(0, 5)


@given(RATES, st.floats(0, 1e5), st.lists(st.tuples(PAUSES_S, st.floats(0, 1e6)), max_size=30))
def test_no_more_comes_than_the_rate_a_burst_and_a_batch(rate, burst, offered):
    bucket, now_s, came = TokenBucket(burst, 0.0), 0.0, 0.0
    for pause_s, size in offered:
        now_s += pause_s
        bucket.refill(now_s, rate=rate, burst=burst)
        if not bucket.wait_s(rate=rate, wanted=rate):
            assert came <= (rate * now_s + burst) * (1 + 1e-9)
            bucket.take(size)
            came += size


@given(RATES, st.floats(0, 1e6), st.floats(1e-3, 10))
def test_batch_may_come_after_the_wait_and_not_before(rate, debt, wanted_s):
    bucket, wanted = TokenBucket(-debt), wanted_s * rate
    wait_s = bucket.wait_s(rate=rate, wanted=wanted)
    early = TokenBucket(-debt)
    early.refill(0.999 * debt / rate, rate=rate, burst=2 * wanted)
    assert debt == 0 or early.wait_s(rate=rate, wanted=wanted) > 0
    bucket.refill(wait_s * (1 + 1e-9), rate=rate, burst=2 * wanted)
    assert bucket.wait_s(rate=rate, wanted=wanted) == 0
    assert bucket.tokens == pytest.approx(wanted, rel=1e-6, abs=1e-6 * (debt + 1))


@given(RATES, st.floats(0, 1e5), st.floats(-1e5, 1e5), st.lists(PAUSES_S, min_size=1))
def test_many_refills_equal_one(rate, burst, tokens, pauses_s):
    often, once = TokenBucket(min(tokens, burst)), TokenBucket(min(tokens, burst))
    now_s = 0.0
    for pause_s in pauses_s:
        now_s += pause_s
        often.refill(now_s, rate=rate, burst=burst)
    once.refill(now_s, rate=rate, burst=burst)
    assert often.tokens == pytest.approx(once.tokens, rel=1e-9, abs=1e-3)
    assert once.tokens <= burst


def test_times_out_of_order_add_no_tokens_twice():
    bucket = TokenBucket()
    for now_s in (1.0, 0.5, 1.0, 0.0, 1.0):  # Threads read the clock before they are in turn.
        bucket.refill(now_s, rate=10.0, burst=100.0)
    assert bucket.tokens == 10


def test_smaller_burst_holds_from_the_next_refill():
    bucket = TokenBucket(10.0)
    bucket.refill(1.0, rate=10.0, burst=20.0)
    assert bucket.tokens == 20
    bucket.refill(1.0, rate=10.0, burst=5.0)
    assert bucket.tokens == 5


def test_batch_larger_than_all_tokens_comes_and_is_paid_off():
    bucket = TokenBucket(1.0)
    bucket.take(101.0)
    assert bucket.wait_s(rate=10.0, wanted=1.0) == pytest.approx(10.1)
    bucket.give_back(101.0)
    assert bucket.tokens == 1
