"""A producer that was evicted, or forgotten, never looks like one that has stored nothing."""

import pytest

from shedder.engine.ingest.known_producers import (
    KnownProducers,
    ProducerLimits,
    ProducerMemory,
    ProducerState,
)
from shedder.engine.ingest.producer_sequences import Content, Progress
from shedder.errors import ProducerForgotten

NOW_US, DAY_US = 1_700_000_000_000_000, 86_400_000_000
LIMITS = ProducerLimits(bytes_max=20_000, evicted_max=100)


def known(limits=LIMITS, streams=1):
    memory = ProducerMemory(limits)
    return [KnownProducers(memory) for _ in range(streams)]


def progress(number, epoch=0):
    return Progress(epoch, number, 10 * number, 10, True, (Content(number, 10, 7),))


def test_evicted_producers_keep_their_numbers_and_lose_their_contents():
    [producers] = known()
    for number in range(100):
        producers.note(f"p{number}", progress(number), NOW_US)
    assert len(producers.active) < 60
    for number in range(100):
        found = producers.get(f"p{number}")
        assert (found.sequence, found.position, found.rows) == (number, 10 * number, 10)
    assert producers.get("p0").contents == ()
    assert producers.epoch_min == 0
    assert producers.get("another") is None


def test_an_open_push_stays_open_when_its_producer_is_evicted():
    [producers] = known()
    producers.note("p", Progress(3, 4, 50, 20, is_whole=False), NOW_US)
    for number in range(99):
        producers.note(f"p{number}", progress(number), NOW_US)
    assert "p" not in producers.active
    assert producers.get("p").place == (3, 4, 20, False)


def test_a_producer_that_comes_back_is_active_and_is_found_as_it_is_then():
    [producers] = known()
    for turn in range(3):
        producers.note("p", progress(turn), NOW_US)
        for number in range(60):
            producers.note(f"p{number}", progress(number), NOW_US)
        assert "p" not in producers.active
        assert producers.get("p").sequence == turn


def test_after_one_is_forgotten_an_unknown_one_must_begin_above_its_epoch():
    [producers] = known()
    for number in range(500):
        producers.note(f"p{number}", progress(number, epoch=number % 7), NOW_US)
    assert producers.get("p0") is None
    assert producers.epoch_min == 7
    with pytest.raises(ProducerForgotten, match="begin it in epoch 7"):
        producers.check_begins("p0", 6)
    producers.check_begins("new", 7)


def test_no_more_producers_are_kept_than_the_limits_allow():
    streams = known(streams=4)
    for number in range(2_000):
        streams[number % 4].note(f"producer number {number}", progress(number), NOW_US)
    for producers in streams:
        assert len(producers) - len(producers.active) == LIMITS.evicted_max
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
    producers.note("open", Progress(2, 3, 40, 11, False, (Content(3, 11, None),)), NOW_US)
    state = producers.state()
    again = KnownProducers(
        ProducerMemory(LIMITS),
        ProducerState.from_json(state.to_json(), state.evicted, state.epoch_min),
    )
    assert again.active == producers.active
    assert again.epoch_min == producers.epoch_min == 1
    assert len(again) == len(producers)
    for number in range(200):
        assert again.get(f"p{number}") == producers.get(f"p{number}")
    for number in range(200, 300):  # The oldest of them go first, in both.
        for each in (again, producers):
            each.note(f"p{number}", progress(number), NOW_US)
    assert again.state() == producers.state()


def test_a_checkpoint_of_an_earlier_version_is_read():
    said = {"p": {"epoch": 1, "sequence": 2, "position": 30, "rows": None}}
    state = ProducerState.from_json(said, b"", 0)
    assert state.active == {"p": Progress(1, 2, 30, None)}
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
    assert len(producers) == 130  # Some are active, and the others evicted: fewer than 100.
    for number in range(95):
        producers.note(f"later {number}", progress(number), NOW_US + later_us)
    assert producers.get(f"{prefix}0") is None
    assert producers.epoch_min == epoch_min
