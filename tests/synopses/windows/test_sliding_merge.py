"""Windows over summaries: every stretch equals the merge of all its panes, in few merges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakSet, ref

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from synopses.frequent.frequent_items import GroupedFrequent
from synopses.moments.counts import GroupedCount
from synopses.windows.sliding_merge import WindowMerges, block_leaves, merges_max
from tests.laws import Part, Subject
from tests.synopses.subjects import LINEAR, LOSSY, NOT_YET_LOSSY

GROUPS = 3


class Letters:
    """The leaves' own numbers, in the order in which they were merged."""

    merges = 0

    def __init__(self, numbers: tuple[int, ...] = ()) -> None:
        self.numbers = numbers

    def merge(self, other: Letters) -> Letters:
        Letters.merges += 1
        self.numbers += other.numbers
        return self


class LettersMade:
    """A factory of the summaries that merges begin with, which knows those still in use."""

    def __init__(self) -> None:
        self._alive: WeakSet[Letters] = WeakSet()

    def empty(self) -> Letters:
        letters = Letters()
        self._alive.add(letters)
        return letters

    @property
    def kept(self) -> list[Letters]:
        """The merges in use; the test must hold no merge that it was given."""
        return list(self._alive)


def letters_of(leaves: int, made: LettersMade | None = None) -> WindowMerges[Letters]:
    empty = Letters if made is None else made.empty
    return WindowMerges(empty, lambda letters: np.array([len(letters.numbers)]), leaves)


def numbers_of(letters: Letters | None) -> tuple[int, ...]:
    return () if letters is None else letters.numbers


def test_a_block_is_about_the_square_root_of_a_window() -> None:
    assert [block_leaves(leaves) for leaves in (1, 60, 64, 65, 100, 1_000, 10_000)] == [
        8, 8, 8, 9, 10, 32, 100,
    ]  # fmt: skip


class Sliding(RuleBasedStateMachine):
    """A stream of panes with gaps, windows in any order, late leaves, drops, renumbered groups."""

    def __init__(self) -> None:
        super().__init__()
        self.made = LettersMade()
        self.merges = letters_of(1, self.made)
        self.leaves: dict[int, tuple[int, ...]] = {}
        self.newest = -700
        self.dropped = -1_000
        self.room: int | None = None
        self.results: list[tuple[Letters | None, tuple[int, ...]]] = []

    @initialize(leaves=st.sampled_from([1, 60, 100, 400, 7_000]))
    def begin(self, leaves: int) -> None:
        self.merges = letters_of(leaves, self.made)

    @rule(gaps=st.lists(st.sampled_from([1, 1, 1, 1, 2, 9, 70, 5_000]), min_size=1, max_size=40))
    def append(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.newest += gap
            self.put(self.newest)

    @rule(back=st.integers(0, 100))
    def put_late(self, back: int) -> None:
        if self.newest - back >= self.dropped:
            self.put(self.newest - back)

    def put(self, number: int) -> None:
        self.leaves[number] = (number, len(self.leaves))
        self.merges.add(number, Letters(self.leaves[number]))

    @rule(back=st.integers(-3, 200))
    def drop(self, back: int) -> None:
        self.dropped = max(self.dropped, self.newest - back)
        self.leaves = {n: held for n, held in self.leaves.items() if n >= self.dropped}
        self.merges.drop_before(self.dropped)

    @rule()
    def forget(self) -> None:
        self.merges.forget_merges()
        assert self.merges.size.sum() == 0

    @rule(room=st.sampled_from([0, 10, 100, 1_000]))
    def limit(self, room: int) -> None:
        self.room = room
        self.merges.limit(np.array([room]))

    @rule(back=st.integers(-20, 120), leaves=st.integers(0, 7_000))
    def ask(self, back: int, leaves: int) -> None:
        end = self.newest - back
        self.compare(max(self.dropped, end - leaves), end)

    @precondition(lambda self: self.leaves)
    @rule(leaves=st.integers(1, 200), slides=st.integers(1, 30))
    def slide(self, leaves: int, slides: int) -> None:
        for _ in range(slides):
            self.append([1])
            self.drop(leaves)
            self.compare(self.newest - leaves, self.newest)

    def compare(self, first: int, end: int) -> None:
        inside = sorted(n for n in self.leaves if first <= n < end)
        expected = tuple(part for n in inside for part in self.leaves[n])
        merged = self.merges.merged(first, end)
        assert numbers_of(merged) == expected
        assert numbers_of(self.merges.stretch(first, end)) == expected
        self.results = [(merged, expected), *self.results[:20]]

    @invariant()
    def returned_merges_stay_as_they_were(self) -> None:
        assert all(numbers_of(merged) == expected for merged, expected in self.results)

    @invariant()
    def the_size_is_that_of_the_merges(self) -> None:
        weak = [
            (ref(letters), expected) for letters, expected in self.results if letters is not None
        ]
        self.results = []
        own = [len(letters.numbers) for letters in self.made.kept]
        self.results = [
            (letters, expected) for of, expected in weak if (letters := of()) is not None
        ]
        assert self.merges.size.tolist() == [sum(own)]
        assert self.room is None or sum(own) <= self.room


TestSliding = Sliding.TestCase
TestSliding.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [1, 2, 7, 8, 9, 16, 63, 64, 65, 300, 511, 600, 1_000, 4_000])
def test_no_slide_costs_more_than_a_few_merges_and_these_take_bounded_room(leaves: int) -> None:
    made = LettersMade()
    merges, costs = letters_of(leaves, made), []
    for number in range(-leaves, 2 * leaves + 600):
        merges.add(number, Letters((number,)))
        merges.drop_before(number - leaves + 1)
        Letters.merges = 0
        assert numbers_of(merges.merged(number - leaves + 1, number + 1))[-1] == number
        if number >= 0:
            costs.append(Letters.merges)
        assert len(made.kept) <= merges_max(leaves)
    assert max(costs) <= (12 if leaves > 64 else 15)
    assert np.mean(costs) <= (8 if leaves > 64 else 9)


@pytest.mark.slow
@pytest.mark.parametrize("slide", [2, 3, 10, 31, 32, 33, 100])
def test_a_slide_of_several_leaves_costs_little_more_than_these(slide: int) -> None:
    made = LettersMade()
    merges, costs = letters_of(1_000, made), []
    for number in range(4_000):
        merges.add(number, Letters((number,)))
        if number % slide:
            continue
        merges.drop_before(number - 999)
        Letters.merges = 0
        merges.merged(number - 999, number + 1)
        if number >= 1_000:
            costs.append(Letters.merges)
        assert len(made.kept) <= merges_max(1_000 + slide)
    assert np.mean(costs) <= 7 + 4 * slide


def test_a_window_of_a_day_with_two_tuples_costs_nothing_for_its_gap() -> None:
    made = LettersMade()
    merges = letters_of(60, made)
    merges.add(5, Letters((5,)))
    merges.add(5 + (1 << 40), Letters((6,)))
    assert numbers_of(merges.merged(0, 1 << 41)) == (5, 6)
    assert numbers_of(merges.stretch(0, 1 << 41)) == (5, 6)
    assert len(made.kept) <= 5


def panes_of(subject: Subject, count: int, seed: int) -> list[Any]:
    """Panes that know one to three groups, some of them empty."""
    rng = np.random.default_rng(seed)
    panes = []
    for number in range(count):
        rows = int(rng.integers(0, 12))
        groups = 1 + min(number // 20, GROUPS - 1)  # Later panes know more groups.
        ids = rng.integers(0, groups, rows).astype(np.int32)
        panes.append(subject.of(Part(ids, rng.lognormal(2, 2, rows)), groups))
    return panes


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*LINEAR, *NOT_YET_LOSSY], ids=lambda s: s.name)
def test_a_sliding_window_equals_the_merge_of_all_its_panes(subject: Subject) -> None:
    panes, leaves = panes_of(subject, 110, seed=7), 75
    merges: WindowMerges[Any] = WindowMerges(
        lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes]), 75
    )
    before = [subject.state(pane) for pane in panes]
    for number, pane in enumerate(panes):
        merges.add(number, pane)
        first = max(0, number - leaves + 1)
        merges.drop_before(first)
        if number % 3:
            continue
        naive = subject.empty(GROUPS)
        for other in panes[first : number + 1]:
            naive.merge(other)
        merged = subject.empty(GROUPS).merge(merges.merged(first, number + 1))
        subject.assert_same(merged, naive)
    after = [subject.state(pane) for pane in panes]
    np.testing.assert_equal(after, before)  # Leaves are only read.


@pytest.mark.parametrize("subject", LOSSY, ids=lambda s: s.name)
def test_counts_of_a_window_hold_the_truth_of_its_panes(subject: Subject) -> None:
    everything = replace(
        subject, empty=lambda groups: GroupedFrequent(groups, 4096, subject.empty(0).items)
    )
    panes, truths = panes_of(subject, 110, seed=3), panes_of(everything, 110, seed=3)
    merges: WindowMerges[Any] = WindowMerges(
        lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes]), 75
    )
    for number, pane in enumerate(panes):
        merges.add(number, pane)
    for end in range(76, 111, 5):
        whole = merges.merged(end - 75, end)
        assert whole is not None
        truth = everything.empty(GROUPS)
        for other in truths[end - 75 : end]:
            truth.merge(other)
        for items, exact in zip(whole.top(16), truth.top(4096), strict=True):
            counts = {item.value: item.count for item in exact}
            assert items
            for item in items:
                assert item.low <= counts.get(item.value, 0) <= item.high


def test_the_same_window_has_the_same_bits_whatever_was_asked_before() -> None:
    (subject,) = (s for s in LINEAR if s.name == "double moments")
    panes = panes_of(subject, 200, seed=11)

    def merges_of() -> WindowMerges[Any]:
        merges: WindowMerges[Any] = WindowMerges(
            lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes]), 100
        )
        for number, pane in enumerate(panes):
            merges.add(number, pane)
        return merges

    lived, fresh = merges_of(), merges_of()
    for end in range(100, 201):
        merged = lived.merged(end - 100, end)
    again = fresh.merged(100, 200)
    assert merged is not None
    assert again is not None
    assert merged.to_bytes() == again.to_bytes()


def test_merges_of_counts_count() -> None:
    merges = WindowMerges(lambda: GroupedCount(1), lambda s: np.array([s.size_bytes]), 80)
    for number in range(100):
        pane = GroupedCount(1)
        pane.update(None, number)
        merges.add(number, pane)
    whole = merges.merged(10, 90)
    assert whole is not None
    assert whole.counts.tolist() == [sum(range(10, 90))]
    assert merges.merged(200, 300) is None
    assert merges.merged(50, 50) is None


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_without_room_a_window_costs_little_more_than_merging_all(share: float) -> None:
    leaves = 500
    free = letters_of(leaves)
    for number in range(2 * leaves):
        free.add(number, Letters((number,)))
        free.merged(number - leaves + 1, number + 1)
    merges = letters_of(leaves)
    merges.limit((free.size * share).astype(np.int64))
    costs = []
    for number in range(-leaves, leaves):
        merges.add(number, Letters((number,)))
        merges.drop_before(number - leaves + 1)
        Letters.merges = 0
        whole = merges.merged(number - leaves + 1, number + 1)
        costs.append(Letters.merges)
        assert numbers_of(whole) == tuple(range(max(-leaves, number - leaves + 1), number + 1))
        assert merges.size.sum() <= free.size.sum() * share
    assert max(costs) <= 1.1 * leaves
    assert share == 0.0 or np.mean(costs[leaves:]) < 0.8 * leaves
