"""Quotas: what can be said in a file, and buckets that let in no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.errors import BadSetting
from shedder.overload.quotas import BURST_S, NO_QUOTA, Quota, Rates, parse_quotas, quota_value

FILE = """
[tenant.acme]
queries = 20
synopsis_bytes = "64MiB"
cpu_ns_per_s = 2e8
rows_per_s = 100_000
bytes_per_s = "50MB"
weight = 2

[tenant.default]
rows_per_s = "none"
"""


def test_a_file_says_what_each_tenant_may_take():
    assert parse_quotas(FILE) == {
        "acme": Quota(20, 64 << 20, 2e8, 100_000.0, 50e6, 2.0),
        "default": NO_QUOTA,
    }
    assert parse_quotas("") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x [", "not TOML"),
        ("tenants = 3", r"holds \[tenant.NAME\] tables"),
        ("tenant = 3", r"holds \[tenant.NAME\] tables"),
        ("[tenant]\nacme = 3", r"holds \[tenant.NAME\] tables"),
        ("[tenant.a]\nrows = 3", "tenant 'a': no quota 'rows'; there are queries, synopsis_bytes"),
        ("[tenant.a]\nrows_per_s = nan", "rows_per_s = nan: not a finite number"),
        ("[tenant.a]\nrows_per_s = inf", "not a finite number"),
        ("[tenant.a]\nrows_per_s = true", "not a finite number"),
        ("[tenant.a]\nrows_per_s = []", "not a finite number"),
        ("[tenant.a]\nrows_per_s = -1", "rows_per_s = -1: a number over 0, or 'none'"),
        ("[tenant.a]\nrows_per_s = 0", "a number over 0"),
        ("[tenant.a]\nqueries = -1", "queries = -1: a whole number, at least 0"),
        ("[tenant.a]\nqueries = 1.5", "a whole number"),
        ("[tenant.a]\nqueries = 1e19", "below 2.63, or 'none'"),
        ("[tenant.a]\narchive_bytes = '8589934592GiB'", "below 2.63, or 'none'"),
        ("[tenant.a]\nsynopsis_bytes = '64 parsecs'", "a size is a number"),
        ("[tenant.a]\nweight = 0", "weight = 0: a number over 0"),
        ("[tenant.a]\nweight = 'none'", "not a finite number"),
    ],
)
def test_what_no_quota_can_be_is_refused_with_the_value(text, message):
    with pytest.raises(BadSetting, match=message):
        parse_quotas(text)


def test_a_control_says_a_value_as_text():
    assert quota_value("queries", "0") == 0
    assert quota_value("synopsis_bytes", "1KiB") == 1024
    assert quota_value("rows_per_s", " None ") is None
    with pytest.raises(BadSetting):
        quota_value("queries", "")


@pytest.mark.slow
@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.floats(0, 2), st.integers(0, 100_000)), min_size=1, max_size=60),
)
def test_no_more_comes_than_the_rate_a_burst_and_a_batch(rate, offered):
    """... over any stretch that begins with the first batch."""
    rates = Rates(lambda _: Quota(rows_per_s=rate))
    now_s, came = 10.0, 0
    for pause_s, rows in offered:
        now_s += pause_s
        if rates.wait_ms("a", rows, 1 << 20, now_s) == 0:
            assert came <= rate * (now_s - 10.0 + BURST_S) * (1 + 1e-9)
            came += rows


def test_a_quota_comes_evenly_however_long_its_tenant_was_still():
    """A hundred batches a second: no tenth of a second brings more than two tenths' worth."""
    rates = Rates(lambda _: Quota(rows_per_s=10_000.0))
    let_in = [
        at_ms for at_ms in range(60_000, 63_000) if not rates.wait_ms("a", 100, 0, at_ms / 1e3)
    ]
    assert len(let_in) in range(300, 312)
    assert all(late - early >= 100 for early, late in zip(let_in, let_in[21:], strict=False))


def test_who_comes_back_when_told_is_let_in():
    rates = Rates(lambda _: Quota(rows_per_s=100.0))
    assert rates.wait_ms("a", 250, 0, 0.0) == 0  # Into debt: 240 rows, 2.4 s.
    wait_ms = rates.wait_ms("a", 1, 0, 0.0)
    assert 2_400 <= wait_ms <= 2_402
    assert rates.wait_ms("a", 1, 0, wait_ms / 1e3 - 0.01) > 0
    assert rates.wait_ms("a", 1, 0, wait_ms / 1e3) == 0


def test_bytes_and_rows_are_both_asked_and_nothing_is_taken_when_one_refuses():
    quota = Quota(rows_per_s=10.0, bytes_per_s=1_000.0)
    rates = Rates(lambda _: quota)
    assert rates.wait_ms("a", 1, 5_000, 0.0) == 0
    assert rates.wait_ms("a", 5, 1, 0.0) > 0  # Of bytes none are left until 4.9 s.
    assert rates.wait_ms("a", 9, 1, 4.8) > 0
    assert rates.wait_ms("a", 9, 1, 5.0) == 0


def test_what_is_given_back_may_come_again():
    rates = Rates(lambda _: Quota(rows_per_s=10.0))
    assert rates.wait_ms("a", 10, 0, 0.0) == 0
    assert rates.wait_ms("a", 1, 0, 0.0) > 0
    rates.give_back("a", 10, 0)
    assert rates.wait_ms("a", 1, 0, 0.0) == 0


def test_one_tenants_debt_is_not_anothers():
    rates = Rates(lambda tenant: NO_QUOTA if tenant == "free" else Quota(rows_per_s=10.0))
    assert rates.wait_ms("a", 10_000, 0, 0.0) == 0
    assert rates.wait_ms("a", 1, 0, 0.0) == pytest.approx(999_901, abs=2)  # The truth.
    assert rates.wait_ms("a", 1 << 62, 0, 1_000.0) == 0
    assert rates.wait_ms("a", 1, 0, 1_000.0) == 3_600_000  # An hour at most.
    assert rates.wait_ms("b", 10, 0, 0.0) == 0
    assert all(rates.wait_ms("free", 1 << 20, 0, 0.0) == 0 for _ in range(100))


def test_a_rate_that_is_lowered_holds_at_once():
    rate = 1_000.0
    rates = Rates(lambda _: Quota(rows_per_s=rate))
    assert rates.wait_ms("a", 10, 0, 0.0) == 0
    rate = 1.0
    assert rates.wait_ms("a", 1, 0, 0.0) == 0
    assert rates.wait_ms("a", 1, 0, 0.0) > 0


def test_many_who_are_refused_are_told_different_times():
    """One hundred batches of 10 rows at 100 rows/s: one may come every 100 ms, up to 5 s."""
    rates = Rates(lambda _: Quota(rows_per_s=100.0))
    assert rates.wait_ms("a", 20, 0, 0.0) == 0
    waits_ms = [rates.wait_ms("a", 10, 0, 0.0) for _ in range(100)]
    assert waits_ms[:50] == [pytest.approx(101 + 100 * turn, abs=1) for turn in range(50)]
    assert waits_ms[51] < 300  # Then from the beginning.
    assert rates.wait_ms("a", 10, 0, 0.0, reserve=False) == rates.wait_ms("a", 10, 0, 0.0)
    assert rates.wait_ms("a", 10, 0, 60.0) == 0  # No caller kept its slot:
    assert rates.wait_ms("a", 10, 0, 60.0) <= 101  # ... so earlier slots do not count.
