"""A producer that was evicted, or forgotten, never looks like one that has stored nothing."""

import dataclasses
import hashlib
import math
from contextlib import suppress

import numpy as np
import pytest

from shedder.engine.ingest.forgotten_producers import ForgottenProducers
from shedder.engine.ingest.known_producers import KnownProducers, ProducerState
from shedder.engine.ingest.producer_memory import ProducerLimits, ProducerMemory
from shedder.engine.ingest.producer_sequences import Content, PushProgress
from shedder.errors import BadSetting, ProducerForgotten, QuotaExceeded
from tests.seeds import seed

NOW_US, DAY_US = 1_700_000_000_000_000, 86_400_000_000
EVICTED_BYTES = 64  # Of an evicted producer, as ProducerLimits documents it.
LIMITS = ProducerLimits(bytes_max=20_000, evicted_max=100)


def known(limits=LIMITS, streams=1):
    memory = ProducerMemory(limits)
    return [KnownProducers(memory) for _ in range(streams)]


def progress(number, epoch=0):
    return PushProgress(epoch, number, 10 * number, 10, True, (Content(number, 10, 7),))


def evicted(producers):
    return len(producers.state().evicted) // EVICTED_BYTES


def hashes_of(name, count):
    digests = [hashlib.blake2b(f"{name} {each}".encode()).digest() for each in range(count)]
    return [int.from_bytes(digest[:8], "little") for digest in digests]


def test_evicted_producers_keep_their_numbers_and_the_content_of_their_newest_push():
    [producers] = known()
    for number in range(100):
        producers.note(f"p{number}", progress(number), NOW_US)
    assert len(producers.active) < 60
    for number in range(100):
        found = producers.get(f"p{number}")
        assert (found.sequence, found.position, found.rows) == (number, 10 * number, 10)
    assert producers.get("p0").contents == (Content(0, 10, 7),)
    assert producers.epoch_min("p0") == 0
    assert producers.get("another") is None


def test_an_open_push_stays_open_when_its_producer_is_evicted():
    [producers] = known()
    producers.note("p", PushProgress(3, 4, 50, 20, is_whole=False), NOW_US)
    for number in range(99):
        producers.note(f"p{number}", progress(number), NOW_US)
    assert "p" not in producers.active
    found = producers.get("p")
    assert (found.epoch, found.sequence, found.rows, found.is_whole) == (3, 4, 20, False)


def test_a_producer_that_comes_back_is_active_and_is_found_as_it_is_then():
    [producers] = known()
    for turn in range(3):
        producers.note("p", progress(turn), NOW_US)
        for number in range(60):
            producers.note(f"p{number}", progress(number), NOW_US)
        assert "p" not in producers.active
        assert producers.get("p").sequence == turn


def test_a_forgotten_one_must_begin_above_its_epoch_and_a_new_one_may_begin_in_any():
    [producers] = known()
    for number in range(500):
        producers.note(f"p{number}", progress(number, epoch=number % 7), NOW_US)
    for number in range(300):
        assert producers.get(f"p{number}") is None
        with pytest.raises(ProducerForgotten, match="may have been forgotten in an epoch below"):
            producers.check_epoch(f"p{number}", None, number % 7)
        producers.check_epoch(f"p{number}", None, 8)
    for number in range(300):
        producers.check_epoch(f"new {number}", None, 0)


@pytest.mark.parametrize("epoch", [0, 1, 7, 8, (1 << 40) - 1, 1 << 40, (1 << 62) - 1, 1 << 62])
def test_no_epoch_of_a_client_shuts_a_name_out(epoch):
    """With one slot, all names share a bound: it is as if very many were forgotten."""
    limits = ProducerLimits(bytes_max=1_000, evicted_max=1, forgotten_bytes=1)
    [producers] = known(limits)
    bounds = []
    for number in range(20):
        name = f"p{number}"
        producers.check_epoch(name, None, max(epoch, producers.epoch_min(name)))
        at = max(epoch, producers.epoch_min(name))
        producers.note(name, progress(0, epoch=at), NOW_US)
        with pytest.raises(BadSetting, match="from 0 to 2\\^62"):
            producers.check_epoch(name, producers.get(name), producers.state().epoch_max + 1)
        bounds.append(producers.epoch_min("new"))
    assert bounds[-1] > epoch
    assert bounds == sorted(bounds)
    assert bounds[-1] < (1 << 62) + 20
    for number in range(15):
        with pytest.raises(ProducerForgotten):
            producers.check_epoch(f"p{number}", None, max(0, bounds[-1] - 1))


def test_a_forgotten_epoch_is_never_below_its_bound():
    forgotten = ForgottenProducers()
    generator = np.random.default_rng(seed("forgotten producers"))
    hashes = generator.integers(0, 1 << 64, 2_000, np.uint64).tolist()
    epochs = (generator.integers(0, 1 << 62, 2_000) >> generator.integers(0, 62, 2_000)).tolist()
    for hashed, epoch in zip(hashes, epochs, strict=True):
        forgotten.add(hashed, epoch, slots=1 << 10)
    again = ForgottenProducers(forgotten.to_bytes(), forgotten.epoch_max)
    for hashed, epoch in zip(hashes, epochs, strict=True):
        assert epoch < forgotten.epoch_min(hashed) == again.epoch_min(hashed)
        assert forgotten.epoch_min(hashed) <= forgotten.epoch_max


@pytest.mark.parametrize(
    ("forgotten_names", "share"),
    [(131_072, 0.0002), (262_144, 0.0024), (400_000, 0.01), (1_000_000, 0.14)],
)
def test_as_many_new_names_are_taken_for_forgotten_ones_as_the_documentation_says(
    forgotten_names, share
):
    """A new name has four slots, each raised with probability 1 - exp(-4 names / slots)."""
    documented = (1 - math.exp(-4 * forgotten_names / ProducerLimits().forgotten_bytes)) ** 4
    assert documented == pytest.approx(share, rel=0.05)
    slots, new_names = 1 << 14, 10_000  # Fewer slots and names, in the same ratio.
    forgotten = ForgottenProducers()
    names = forgotten_names * slots // ProducerLimits().forgotten_bytes
    for hashed in hashes_of("old", names):
        forgotten.add(hashed, 1 << 50, slots=slots)
    taken = sum(forgotten.epoch_min(hashed) > 0 for hashed in hashes_of("new", new_names))
    expected = documented * new_names
    assert abs(taken - expected) < 4 * math.sqrt(expected)  # Four deviations of a Poisson count.


def test_a_statement_with_the_name_of_an_earlier_version_is_not_begun_anew():
    [producers] = known()
    producers.note("insert/3/70/my/copy\n", progress(0), NOW_US)
    for number in range(99):
        producers.note(f"p{number}", progress(number), NOW_US)
    assert "insert/3/70/my/copy\n" not in producers.active
    assert producers.epoch_min("insert/3/from/my/copy\n") == 1
    assert producers.epoch_min("insert/3/from/another") == 0


def test_no_more_producers_are_kept_than_the_limits_allow():
    streams = known(streams=4)
    for number in range(2_000):
        streams[number % 4].note(f"producer number {number}", progress(number), NOW_US)
    for producers in streams:
        assert evicted(producers) == LIMITS.evicted_max
        assert len(producers.active) * 550 < 2 * LIMITS.bytes_max / 4


def test_a_flood_of_names_in_one_stream_evicts_no_producers_of_another():
    quiet, flooded = known(streams=2)
    for number in range(10):
        quiet.note(f"p{number}", progress(number), NOW_US)
    for number in range(1_000):
        flooded.note(f"p{number}", progress(number), NOW_US)
    assert len(quiet.active) == 10


def test_a_stream_that_is_dropped_gives_its_memory_back():
    memory = ProducerMemory(LIMITS)
    first, second = KnownProducers(memory), KnownProducers(memory)
    first.note("p", progress(1), NOW_US)
    second.note("p", progress(1), NOW_US)
    both = memory.size_bytes
    first.close()
    assert memory.size_bytes == both / 2


def test_a_checkpoint_has_all_of_it():
    [producers] = known()
    for number in range(200):
        producers.note(f"p{number}", progress(number), NOW_US)
    producers.note("open", PushProgress(2, 3, 40, 11, False, (Content(3, 11, None),)), NOW_US)
    state = producers.state()
    again = KnownProducers(
        ProducerMemory(LIMITS),
        ProducerState.from_json(state.to_json(), state.evicted, state.forgotten),
    )
    assert again.active == producers.active
    assert again.epoch_min("p0") == producers.epoch_min("p0") == 1
    assert evicted(again) == evicted(producers)
    for number in range(200):
        assert again.get(f"p{number}") == producers.get(f"p{number}")
    for number in range(200, 300):  # The oldest of them go first, in both.
        for each in (again, producers):
            each.note(f"p{number}", progress(number), NOW_US)
    assert again.state() == producers.state()


def test_a_checkpoint_of_an_earlier_version_is_read():
    said = {"producers": {"p": {"epoch": 1, "sequence": 2, "position": 30, "rows": None}}}
    state = ProducerState.from_json(said, b"", b"")
    assert state.active == {"p": PushProgress(1, 2, 30, None)}
    assert state.to_json() == said


@pytest.mark.parametrize(
    ("prefix", "later_us", "epoch_min"),
    [("~", DAY_US + 1, 0), ("~", DAY_US, 1), ("~", -DAY_US, 1), ("p", 9 * DAY_US, 1)],
)
def test_names_of_one_process_are_forgotten_without_a_trace_after_a_day(
    prefix, later_us, epoch_min
):
    [producers] = known()
    for number in range(130):
        producers.note(f"{prefix}{number}", progress(number), NOW_US)
    assert len(producers.active) + evicted(producers) == 130
    assert evicted(producers) < 100
    for number in range(95):
        producers.note(f"later {number}", progress(number), NOW_US + later_us)
    assert producers.get(f"{prefix}0") is None
    assert producers.epoch_min(f"{prefix}0") == epoch_min


def test_a_tenant_at_its_limit_is_refused_in_the_stream_with_more_than_its_share():
    memory = ProducerMemory(ProducerLimits(names_max=40))
    flooded, small = (KnownProducers(memory, tenant="a") for _ in range(2))
    other = KnownProducers(memory, tenant="b")
    for number in range(40):
        flooded.check_room(f"p{number}", None, NOW_US)
        flooded.note(f"p{number}", progress(number), NOW_US)
    with pytest.raises(
        QuotaExceeded, match=r"tenant 'a' has 40 producers, and producers_max is 40: 'new'"
    ):
        flooded.check_room("new", None, NOW_US)
    flooded.check_room("p0", flooded.get("p0"), NOW_US)  # A known one goes on.
    flooded.note("p0", progress(41), NOW_US)
    for number in range(20):  # Half of the limit is its share.
        small.check_room(f"p{number}", None, NOW_US)
        small.note(f"p{number}", progress(number), NOW_US)
    with pytest.raises(QuotaExceeded):
        small.check_room("new", None, NOW_US)
    for number in range(39):
        other.note(f"p{number}", progress(number), NOW_US)
    other.check_room("new", None, NOW_US)
    assert (memory.names_of("a"), memory.names_of("b")) == (60, 39)
    small.close()
    flooded.close()
    assert memory.names_of("a") == 0
    KnownProducers(memory, tenant="a").check_room("new", None, NOW_US)


def test_streams_that_are_filled_one_after_the_other_exceed_the_limit_as_documented():
    memory = ProducerMemory(ProducerLimits(names_max=1_000))
    for stream in range(10):
        producers = KnownProducers(memory, tenant="a")
        for name in (f"{stream}/{number}" for number in range(1_001)):
            with suppress(QuotaExceeded):
                producers.check_room(name, None, 0)
                producers.note(name, PushProgress(0, 0, 0, 1), 0)
    assert memory.names_of("a") == 2_927


@pytest.mark.slow
def test_bytes_of_streams_that_are_filled_one_after_the_other_are_within_the_documented_sum():
    limits = ProducerLimits(
        bytes_max=100_000, evicted_max=2_048, forgotten_bytes=1 << 16, remembered_bytes_max=1 << 18
    )
    memory, times = ProducerMemory(limits), 0.0
    for stream in range(1, 11):
        producers, times = KnownProducers(memory), times + 1.0 / stream
        for number in range(3_000):
            producers.note(f"{stream}/{number}", progress(number), NOW_US)
        assert memory.size_bytes <= 100_000 * times + 600 * stream  # The newest of each.
        assert memory.remembered_bytes <= (1 << 18) * times + 9_000 * stream  # The least of each.
    assert 2.9 < times < 2.93


def test_names_of_one_process_that_are_past_make_room_at_the_limit():
    memory = ProducerMemory(dataclasses.replace(LIMITS, names_max=100))
    producers = KnownProducers(memory, tenant="a")
    for number in range(100):
        prefix = "~" if number % 2 else "p"
        producers.note(f"{prefix}{number}", progress(number), NOW_US)
    with pytest.raises(QuotaExceeded):
        producers.check_room("new", None, NOW_US + DAY_US)
    before = evicted(producers)
    producers.check_room("new", None, NOW_US + DAY_US + 1)
    assert evicted(producers) == before // 2
    for number in range(0, 100, 2):
        assert producers.get(f"p{number}").sequence == number
    assert producers.get("~1") is None
    assert producers.epoch_min("~1") == 0
    for number in range(before // 2):
        producers.check_room(f"new {number}", None, NOW_US + DAY_US + 1)
        producers.note(f"new {number}", progress(number), NOW_US + DAY_US + 1)
    for number in range(0, 100, 2):
        assert producers.get(f"p{number}").sequence == number


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 50])
def test_evicted_and_forgotten_producers_of_all_streams_stay_within_their_bytes(count):
    limits = ProducerLimits(
        bytes_max=1_000, evicted_max=4_096, forgotten_bytes=1 << 18, remembered_bytes_max=1 << 19
    )
    memory = ProducerMemory(limits)
    streams = [KnownProducers(memory) for _ in range(count)]
    for number in range(8_000):
        streams[number % count].note(f"p{number}", progress(number), NOW_US)
    held = [len(each.state().evicted) + len(each.state().forgotten) for each in streams]
    assert sum(held) <= memory.remembered_bytes
    assert memory.remembered_bytes <= 2 << 19  # A stream with more than its share keeps it.
    assert memory.remembered_bytes > (1 << 19) // 4
    late = KnownProducers(memory)
    for number in range(2_000):
        late.note(f"p{number}", progress(number), NOW_US)
    assert 64 * 64 <= len(late.state().evicted) <= (1 << 19) // (count + 1)
    late.close()
    for number in range(0, 8_000, 97):  # None looks like one that has stored nothing.
        known = streams[number % count].get(f"p{number}")
        assert known is not None or streams[number % count].epoch_min(f"p{number}") > 0
    for each in streams:
        each.close()
    assert (memory.remembered_bytes, memory.size_bytes) == (0, 0)


def test_a_checkpoint_with_more_than_fits_now_is_kept():
    [producers] = known()
    for number in range(300):
        producers.note(f"p{number}", progress(number), NOW_US)
    state = producers.state()
    memory = ProducerMemory(dataclasses.replace(LIMITS, remembered_bytes_max=1, names_max=1))
    again = KnownProducers(memory, state)
    assert again.state() == state
    again.note("p299", progress(400), NOW_US)
    with pytest.raises(QuotaExceeded):
        again.check_room("new", None, NOW_US)
