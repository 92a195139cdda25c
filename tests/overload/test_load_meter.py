"""The meter in a time that the test tells: every number of a load, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from shedder.overload.load import Load
from shedder.overload.load_meter import RUN_MS, Meter
from shedder.overload.measured_costs import CALL_NS, Factors
from shedder.overload.process_usage import MachineReader, cores, memory_limit_bytes
from shedder.overload.shedding_steps import FREE, Steps, Unit


class Hand:
    def __init__(self):
        self.ms = 0.0

    def __call__(self):
        return int(self.ms * 1e6)


@pytest.fixture
def hand():
    return Hand()


def test_what_answers_take_is_a_share_of_a_core_over_the_last_second(hand):
    meter = Meter(hand)
    for tick in range(1, 31):
        meter.answered(4_000_000)
        meter.answered(1_000_000)
        hand.ms = 100.0 * tick
        load = meter.take()
    assert load.answers_share == pytest.approx(0.05, rel=0.05)
    hand.ms += 100
    assert meter.take().answers_share == pytest.approx(0.9 * load.answers_share)


def test_rates_are_means_over_the_last_ticks(hand):
    meter = Meter(hand)
    meter.came(1_000, 30_000)
    hand.ms = 100
    load = meter.take()
    assert load.tuples_per_s == 5_000  # Half of the 10,000/s of this tick.
    assert load.bytes_per_s == 150_000
    assert load.bytes_per_tuple == 30
    hand.ms = 200
    assert meter.take().tuples_per_s == 2_500


def test_after_a_pause_it_is_still_known_how_large_tuples_are_and_that_some_were_applied(hand):
    meter = Meter(hand)
    hand.ms = 100
    load = meter.take()
    assert (load.bytes_per_tuple, load.has_applied) == (0.0, False)
    meter.came(1_000, 30_000)
    meter.begin(1_000)
    hand.ms = 110
    meter.applied(1_000, 0)
    meter.done()
    for tick in range(2, 40):
        hand.ms = 100.0 * tick
        load = meter.take()
    assert load.tuples_per_s == 0.0
    assert (load.bytes_per_tuple, load.has_applied) == (30.0, True)


def test_the_age_is_that_of_the_oldest_batch_which_waits(hand):
    meter = Meter(hand)
    assert meter.take().age_ms == 0
    hand.ms = 10
    meter.came(100, 1)
    hand.ms = 30
    meter.came(200, 2)
    hand.ms = 60
    load = meter.take()
    assert (load.age_ms, load.queue_tuples, load.queue_bytes) == (50, 300, 3)
    meter.begin(100)
    meter.applied(100, 0)
    meter.done()
    load = meter.take()
    assert (load.age_ms, load.queue_tuples, load.queue_bytes) == (30, 200, 2)


def test_what_waits_takes_as_long_as_what_was_applied_did(hand):
    meter = Meter(hand)
    assert meter.drain_ms(0) == 0
    meter.came(1_000, 20_000)
    assert meter.drain_ms(0) == math.inf  # The cost of a tuple is not known yet.
    meter.begin(500)
    hand.ms = 50
    meter.applied(500, 0)
    hand.ms = 100
    load = meter.take()  # 100 us a tuple.
    assert meter.drain_ms(0) == pytest.approx(500 * 0.1 / load.free_share)
    meter.begin(500)
    hand.ms += 50
    meter.applied(500, 0)
    meter.done()
    free = meter.take().free_share
    assert meter.drain_ms(0) == 0
    assert meter.drain_ms(2_000) == pytest.approx(100 * 0.1 / free)  # Of 20 bytes each.
    assert meter.apply_s(2_000) == pytest.approx(100 * 1e-4 / free)


def test_while_no_more_waits_than_a_cheap_run_there_is_nothing_to_wait_for(hand):
    """However dear tuples are: in small runs they are dear because the runs are small."""
    meter = Meter(hand)
    meter.came(1_000, 20_000)
    meter.begin(500)
    hand.ms = 500
    meter.applied(500, 0)
    meter.take()
    assert meter.drain_ms(0, one_run=499) > 400
    assert meter.drain_ms(0, one_run=500) == 0
    meter.begin(500)
    meter.came(300, 6_000)  # Behind what is being read.
    assert meter.drain_ms(0, one_run=299) > 400
    assert meter.drain_ms(0, one_run=300) == 0
    assert meter.drain_ms(20, one_run=300) > 400  # Of 20 bytes each.


def test_how_long_bytes_take_to_be_durable_is_known_by_what_became_durable(hand):
    meter = Meter(hand)
    assert (meter.apply_s(1e9), meter.store_s(1e9)) == (0.1, 0.1)  # Nothing is known yet.
    meter.came(1_000, 20_000)
    hand.ms = 100
    assert meter.take().bytes_per_s == 100_000  # The mean of 0 and 200,000.
    assert meter.store_s(50_000) == pytest.approx(0.5)


def test_what_a_tuple_costs_beside_its_synopses(hand):
    meter = Meter(hand)
    meter.came(1_000, 1)
    meter.begin(1_000)
    hand.ms = 3
    meter.applied(1_000, synopses_ns=2_000_000)
    assert meter.take().overhead_ns_per_tuple == 1_000


def test_the_answers_of_a_slide_are_all_tuples_overhead_and_not_one_batchs(hand):
    """A tick has 1,000 tuples of 1 us; every tenth has 10, and answers for 50 ms after them."""
    meter = Meter(hand)
    overheads_ns = []
    for tick in range(200):
        tuples, beside_ms = (10, 50) if tick % 10 == 9 else (1_000, 1)
        meter.came(tuples, tuples)
        meter.begin(tuples)
        hand.ms += beside_ms
        meter.applied(tuples, 0)
        meter.done()
        hand.ms += 100 - beside_ms
        overheads_ns.append(meter.take().overhead_ns_per_tuple)
    truth = (9 * 1 + 50) * 1e6 / (9 * 1_000 + 10)
    assert np.mean(overheads_ns[100:]) == pytest.approx(truth, rel=0.1)
    assert max(overheads_ns[100:]) < 2 * truth  # 5,000,000 ns by themselves.


def test_the_free_share_is_what_applying_gets_while_work_waits_without_a_break(hand):
    meter = Meter(hand)
    meter.came(1_000, 1)
    meter.take()
    for _ in range(30):  # Of each 100 ms, 40 go to something else.
        hand.ms += 40
        meter.begin(1)
        hand.ms += 60
        meter.applied(1, 0)
        load = meter.take()
    assert load.free_share == pytest.approx(0.6, abs=0.01)


def test_a_batch_that_is_being_applied_counts_as_it_goes(hand):
    meter = Meter(hand)
    meter.came(1_000, 1)
    meter.take()
    meter.begin(1_000)
    for _ in range(5):
        hand.ms += 100
        assert meter.take().free_share == 1
    meter.applied(1_000, 0)
    assert meter.take().overhead_ns_per_tuple == 500_000


def test_batches_of_a_dropped_stream_leave_the_queue_too(hand):
    meter = Meter(hand)
    meter.came(500, 9)
    meter.done()
    load = meter.take()
    assert (load.queue_tuples, load.queue_bytes, load.age_ms) == (0, 0, 0)


def test_nothing_offered_leaves_endless_room():
    assert Load(at_s=0.0).room_ns_per_tuple(use=0.9, drain_s=1.0) == math.inf
    assert Load(at_s=0.0).bytes_per_tuple == 0


# --- the machine -----------------------------------------------------------------------------


def cgroup(tmp_path, line, **files):
    own = tmp_path / "own"
    own.write_text(line + "\n")
    for name, text in files.items():
        place = tmp_path / "fs" / name.replace("__", "/").replace("DOT", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path / "fs", own


def test_the_memory_limit_is_the_least_of_all_cgroups_above(tmp_path):
    place = cgroup(
        tmp_path,
        "0::/a/b",
        a__b__memoryDOTmax="max\n",
        a__memoryDOTmax="1048576\n",
    )
    assert memory_limit_bytes(*place) == 1 << 20


def test_version_1_says_it_in_another_place(tmp_path):
    place = cgroup(tmp_path, "4:memory:/a", memory__a__memoryDOTlimit_in_bytes="2097152\n")
    assert memory_limit_bytes(*place) == 2 << 20


def test_without_a_limit_it_is_the_machine(tmp_path):
    import psutil

    place = cgroup(tmp_path, "0::/", memoryDOTmax="max\n")
    assert memory_limit_bytes(*place) == psutil.virtual_memory().total


def test_half_a_core_by_quota(tmp_path):
    assert cores(*cgroup(tmp_path, "0::/a", a__cpuDOTmax="50000 100000\n")) == 0.5


def test_a_look_says_what_happened_since_the_last():
    reader = MachineReader()
    first = reader.read(1.0)
    assert first.cpu_share == first.disk_bytes_per_s == 0
    second = reader.read(2.0)
    assert second.cpu_share >= 0
    assert 0 < second.memory_bytes < second.memory_limit_bytes


def test_costs_are_cpu_time_and_what_others_take_of_the_core_is_not_free():
    """A batch of 1,000 takes 1 ms of CPU, and 4 ms until it is done: others want the core, too."""
    wall, cpu = [0], [0]
    meter = Meter(lambda: wall[0], lambda: cpu[0])
    meter.came(1_000_000, 1_000_000)
    for _ in range(40):
        for _ in range(25):
            meter.begin(1_000)
            wall[0] += 4_000_000
            cpu[0] += 1_000_000
            meter.applied(1_000, 600_000)
        load = meter.take()
    assert load.overhead_ns_per_tuple == pytest.approx(400)
    assert load.free_share == pytest.approx(0.25, rel=1e-3)
    assert meter.drain_ms(0) == pytest.approx(0.0)
    meter.came(1_000, 1_000)
    assert meter.drain_ms(0) == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize("call_ms", [0.0, 15.0, 40.0, 90.0])
@pytest.mark.parametrize("tuple_us", [0.1, 1.0, 5.0])
def test_what_is_read_as_one_grows_while_it_takes_little_and_takes_two_run_times_at_most(
    call_ms, tuple_us
):
    """Batches of 16,384; a run has a cost of its own, as thinned synopses have by call."""
    wall, batch, took_ms = [0], 16_384, []
    meter = Meter(lambda: wall[0])
    assert meter.tuples_at_once == 0
    for _ in range(20):
        tuples = max(int(min(meter.tuples_at_once, 65_536) // batch), 1) * batch
        took_ms.append(call_ms + 1e-3 * tuple_us * tuples)
        meter.came(tuples, tuples)
        meter.begin(tuples)
        wall[0] += int(1e6 * took_ms[-1])
        meter.applied(tuples, 0)
        meter.done()
    one_ms = call_ms + 1e-3 * tuple_us * batch
    assert max(took_ms) <= max(2 * RUN_MS, one_ms)
    if 2 * one_ms - call_ms <= RUN_MS:  # Two batches as one take no longer: so they are read.
        assert max(took_ms[-5:]) > one_ms


def test_a_run_that_took_long_makes_the_next_ones_short_at_once():
    wall = [0]
    meter = Meter(lambda: wall[0])
    for tuples, took_ms, at_once in [
        (10_000, 10, 20_000),
        (20_000, 40, 40_000),
        (40_000, int(1.6 * RUN_MS), 40_000),  # Between one run time and two: neither more nor less.
        (40_000, int(4 * RUN_MS), 10_000),
        (0, int(10 * RUN_MS), 10_000),  # Nothing was read: the time was not the tuples'.
    ]:
        meter.came(tuples, tuples)
        meter.begin(tuples)
        wall[0] += took_ms * 1_000_000
        meter.applied(tuples, 0)
        meter.done()
        assert meter.tuples_at_once == at_once


def test_answers_after_a_run_do_not_make_the_next_ones_short():
    wall = [0]
    meter = Meter(lambda: wall[0])
    for answers_ms in (0, int(5 * RUN_MS)):
        meter.came(10_000, 10_000)
        meter.begin(10_000)
        wall[0] += (10 + answers_ms) * 1_000_000
        meter.answered(answers_ms * 1_000_000)
        meter.applied(10_000, 0)
        meter.done()
        assert meter.tuples_at_once == 20_000


# --- costs and steps -------------------------------------------------------------------------

MODEL = np.array([10.0, 7.0, 4.0])


def test_a_model_is_corrected_by_what_was_measured_in_full_and_thinned():
    never = Factors()
    assert never.corrected(MODEL).tolist() == [10, 7, 4]
    full = never.learn(level=0, measured_ns=20.0, modelled_ns=10.0)
    assert full.corrected(MODEL).tolist() == [20, 14, 8]
    both = full
    for rel in (0.05, 0.05, 0.05, 0.03, 0.02, 0.02):  # What full reading says counts less and less.
        both = both.learn(level=1, measured_ns=21.0, modelled_ns=7.0)
        assert both.corrected(MODEL).tolist() == pytest.approx([20, 21, 12], rel=rel)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("at", range(5))
def test_what_has_happened_once_is_not_what_a_synopsis_costs(level, at):
    """One measurement of five is fifty times the others; only the first has nothing beside it."""
    factors = Factors()
    for look in range(5):
        measured_ns = 20.0 if look != at else 1_000.0
        factors = factors.learn(level=level, measured_ns=measured_ns, modelled_ns=10.0)
        known = factors.thinned if level else factors.full
        assert known == pytest.approx(100.0 if look == at == 0 else 2.0)


def test_what_costs_more_from_now_on_is_believed_within_looks():
    factors = Factors()
    for measured_ns in [20.0] * 5 + [80.0] * 8:
        factors = factors.learn(level=1, measured_ns=measured_ns, modelled_ns=10.0)
    assert factors.thinned == pytest.approx(8.0, rel=0.1)


WIDTHS = {  # Of one tuple in ns: read in full, and thinned: what is always taken, what is kept.
    "buckets": (12.2, 0.9, 23.0),
    "ranks": (23.3, 0.3, 33.0),
    "join": (8.8, 1.2, 30.6),
    "sums": (2.0, 0.3, 4.0),
}


FOOT = [0] * 4 + [10] * 4
SEVERAL = [*FOOT, 4, 4, 4, 2, 2, 2]


def looked(model, levels, truth, seed):
    """The factors after looks at these levels, of runs as long as queues happen to make them.

    truth: how many times the model's cost calls, full and thinned reading take.
    """
    rng, factors = np.random.default_rng(seed), Factors()
    calls, full, thinned = truth
    for level in levels:
        rows = 16_384 * (1 if not level else int(rng.integers(1, 5)))
        calls_ns = CALL_NS / rows
        taken = thinned * model[level] + calls * calls_ns if level else full * model[0]
        factors = factors.learn(
            level=level,
            measured_ns=taken * rng.lognormal(0.0, 0.05),
            modelled_ns=float(model[level]),
            calls_ns=calls_ns,
        )
    return factors


@pytest.mark.parametrize("kind", WIDTHS)
@pytest.mark.parametrize("speed", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("calls", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("apart", "levels"), [(1.0, FOOT), (0.75, SEVERAL), (1.0, SEVERAL), (1.33, SEVERAL)]
)
def test_what_any_level_will_cost_is_known_within_a_quarter(kind, speed, calls, apart, levels):
    """Also what full reading will cost while thinned, and the levels that were never seen.

    Thinned reading is another code than full reading, and may be wrong by another factor: where it
    was only seen at the foot, there is nothing to know that from.
    """
    read, always, kept = WIDTHS[kind]
    model = np.r_[read, always + kept * 2.0 ** -np.arange(1, 11)]
    truth = (speed * calls, speed, speed * apart)
    for seed in range(10):
        factors = looked(model, levels, truth, seed)
        for rows in (16_384, 65_536):
            predicted = factors.corrected(model, CALL_NS / rows)
            real = np.r_[truth[1] * model[0], truth[0] * CALL_NS / rows + truth[2] * model[1:]]
            assert (abs(predicted / real - 1) < 0.25).all(), (predicted / real, seed)


def test_one_factor_for_calls_and_tuples_would_be_wrong_by_many_times():
    """What made levels in the middle dearer than reading everything; the test above can fail."""
    read, always, kept = WIDTHS["ranks"]
    model = np.r_[read, always + kept * 2.0 ** -np.arange(1, 11)]
    foot = model[10] + CALL_NS / 16_384
    assert foot / model[10] * model[1] > 3 * (model[1] + CALL_NS / 16_384)
    assert foot / model[10] * model[1] > 2 * read


def test_a_clock_that_lies_is_not_believed_without_end():
    assert Factors().learn(level=0, measured_ns=1e9, modelled_ns=1.0).full == 4096
    assert Factors().learn(level=0, measured_ns=0.0, modelled_ns=1.0) == Factors()


def unit(name, cost, *, tuples=1e6, forced=FREE, weight=1.0):
    return Unit(name, (1,), weight, np.array(cost), tuples, 1.0, forced)


WIDE, GROUPED, PLAIN = [40.0, 22, 12, 7, 4], [9.0, 6, 4.5, 3.5, 3], [1.0, 3, 2.5, 2.2, 2.1]


def test_wide_sketches_go_first_small_groups_late_and_what_saves_nothing_never():
    steps = Steps.of(
        [unit("wide", WIDE), unit("groups", GROUPED, tuples=1e3), unit("plain", PLAIN)]
    )
    assert (steps.ends.full_ns, steps.ends.least_ns) == (50, 8)
    levels = [steps.levels(budget).tolist() for budget in (50, 30, 17, 14, 0)]
    assert levels[:3] == [[0, 0, 0], [2, 0, 0], [3, 0, 0]]
    assert levels[3][0] == 4
    assert levels[4] == [4, 4, 0]


def test_what_the_operator_has_forced_stays_and_is_paid_for():
    steps = Steps.of([unit("wide", WIDE), unit("fixed", WIDE, forced=1)])
    assert (steps.ends.full_ns, steps.ends.least_ns) == (62, 26)
    assert steps.levels(0).tolist() == [4, 1]


def test_a_heavier_query_is_thinned_later():
    light, heavy = Steps.of([unit("light", WIDE), unit("heavy", WIDE, weight=10.0)]).levels(44)
    assert heavy < light


@pytest.mark.parametrize("heavy", [1.0, 1e6, 1e9])
def test_levels_that_break_a_promise_come_last_however_heavy_others_are(heavy):
    """Of 10,000 tuples a half errs by 1 %, a quarter by 1.7 %, an eighth by 2.6 %."""
    free = unit("light", WIDE, tuples=1e4)
    other = unit("heavy", WIDE, tuples=1e4, weight=heavy)
    for promised, most in ((0.02, 2), (0.012, 1), (0.005, 0)):
        light = replace(free, promised=promised)
        assert most_thinned(Steps.of([light, other])) == most
    assert most_thinned(Steps.of([free, other])) > 2
    idle = replace(light, query="idle", share=0.0)  # Of a stream where nothing arrives.
    assert most_thinned(Steps.of([light, other, idle])) == 0
    assert Steps.of([light, other]).levels(0).tolist() == [4, 4]


def most_thinned(steps):
    """The light one's highest level at a budget where the heavy one could still give something."""
    found = [steps.levels(budget).tolist() for budget in np.arange(8.0, 81.0)]
    return max(light for light, heavy, *_ in found if heavy < 4)


def test_nobody_to_thin():
    assert Steps.of([]).levels(0).tolist() == []
    assert Steps.of([]).ends.full_ns == 0
