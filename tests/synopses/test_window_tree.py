"""Windows over summaries: every stretch equals the merge of all its panes, in few merges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from synopses.counts import GroupedCount
from synopses.frequent import GroupedFrequent
from synopses.window_tree import WindowTree, merges_max, middle_of
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


def letters_tree() -> WindowTree[Letters]:
    return WindowTree(Letters, lambda letters: np.array([len(letters.numbers)]))


def kept_in(tree: WindowTree[Any]) -> list[Any]:
    kept = tree._nodes, tree._before, tree._behind, tree._ahead
    return [held for merges in kept for held in merges.values()]


def numbers_of(letters: Letters | None) -> tuple[int, ...]:
    return () if letters is None else letters.numbers


def test_a_window_is_cut_where_8_divides_most_often() -> None:
    assert middle_of(0, 1000) == 512
    assert middle_of(500, 1500) == 1024
    assert middle_of(513, 1023) == 960
    assert middle_of(1, 9) == 8
    assert middle_of(-3, 6) == 0
    assert middle_of(3, 5) == 5


@given(first=st.integers(-(1 << 40), 1 << 40), leaves=st.integers(1, 1 << 20))
def test_the_middle_is_inside_or_the_end(first: int, leaves: int) -> None:
    assert first < middle_of(first, first + leaves) <= first + leaves


class Sliding(RuleBasedStateMachine):
    """A stream of panes with gaps, windows in any order, late leaves, drops, renumbered groups."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = letters_tree()
        self.leaves: dict[int, tuple[int, ...]] = {}
        self.newest = -700
        self.dropped = -1_000
        self.room: int | None = None

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
        self.tree.add(number, Letters(self.leaves[number]))

    @rule(back=st.integers(-3, 200))
    def drop(self, back: int) -> None:
        self.dropped = max(self.dropped, self.newest - back)
        self.leaves = {n: held for n, held in self.leaves.items() if n >= self.dropped}
        self.tree.drop_before(self.dropped)

    @rule()
    def forget(self) -> None:
        self.tree.forget_merges()
        assert self.tree.size.sum() == 0

    @rule(room=st.sampled_from([0, 10, 100, 1_000]))
    def limit(self, room: int) -> None:
        self.room = room
        self.tree.limit(np.array([room]))

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
        assert numbers_of(self.tree.merged(first, end)) == expected

    @invariant()
    def the_size_is_that_of_the_merges(self) -> None:
        tree = self.tree
        held = kept_in(tree)
        leaves = {id(leaf) for leaf in tree._leaves.values()}
        merges = {id(part): part for h in held for part in h.parts}
        own = [len(s.numbers) for key, s in merges.items() if key not in leaves]
        assert tree.size.tolist() == [sum(own)]
        assert self.room is None or sum(own) <= self.room


TestSliding = Sliding.TestCase
TestSliding.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("leaves", [1, 2, 7, 8, 9, 16, 63, 64, 65, 300, 1_000])
def test_a_slide_costs_few_merges_and_the_merges_take_bounded_room(leaves: int) -> None:
    tree = letters_tree()
    costs, levels = [], max(1, len(np.base_repr(leaves, 8)))
    for number in range(-leaves, 3 * leaves + 600):
        tree.add(number, Letters((number,)))
        tree.drop_before(number - leaves + 1)
        Letters.merges = 0
        assert numbers_of(tree.merged(number - leaves + 1, number + 1))[0] >= -leaves
        if number >= 0:
            costs.append(Letters.merges)
        assert sum(held.size is not None for held in kept_in(tree)) <= merges_max(leaves)
    assert max(costs) <= 22 * levels
    assert np.mean(costs) <= 12


@pytest.mark.parametrize("leaves", [64, 100, 511, 512, 600, 1_000, 4_000])
def test_no_slide_waits_for_all_merges_before_a_new_middle(leaves: int) -> None:
    tree, costs = letters_tree(), []
    for number in range(5 * leaves):
        tree.add(number, Letters((number,)))
        tree.drop_before(number - leaves + 1)
        Letters.merges = 0
        tree.merged(number - leaves + 1, number + 1)
        if number >= leaves:
            costs.append(Letters.merges)
    levels = len(np.base_repr(leaves, 8))
    assert max(costs) <= 12 + 10 * levels  # All at once they were 50 for 511 leaves, 56 for 4,000.
    assert np.mean(costs) <= 12


def test_a_window_of_a_day_with_two_tuples_costs_nothing_for_its_gap() -> None:
    tree = letters_tree()
    tree.add(5, Letters((5,)))
    tree.add(5 + (1 << 40), Letters((6,)))
    assert numbers_of(tree.merged(0, 1 << 41)) == (5, 6)
    assert len(tree._nodes) <= 1


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


@pytest.mark.parametrize("subject", [*LINEAR, *NOT_YET_LOSSY], ids=lambda s: s.name)
def test_a_sliding_window_equals_the_merge_of_all_its_panes(subject: Subject) -> None:
    panes, leaves = panes_of(subject, 110, seed=7), 75
    tree: WindowTree[Any] = WindowTree(
        lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes])
    )
    before = [subject.state(pane) for pane in panes]
    for number, pane in enumerate(panes):
        tree.add(number, pane)
        first = max(0, number - leaves + 1)
        tree.drop_before(first)
        if number % 3:
            continue
        naive = subject.empty(GROUPS)
        for other in panes[first : number + 1]:
            naive.merge(other)
        told = subject.empty(GROUPS).merge(tree.merged(first, number + 1))
        subject.assert_same(told, naive)
    after = [subject.state(pane) for pane in panes]
    np.testing.assert_equal(after, before)  # Leaves are only read.


@pytest.mark.parametrize("subject", LOSSY, ids=lambda s: s.name)
def test_counts_of_a_window_hold_the_truth_of_its_panes(subject: Subject) -> None:
    everything = replace(
        subject, empty=lambda groups: GroupedFrequent(groups, 4096, subject.empty(0).items)
    )
    panes, truths = panes_of(subject, 110, seed=3), panes_of(everything, 110, seed=3)
    tree: WindowTree[Any] = WindowTree(
        lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes])
    )
    for number, pane in enumerate(panes):
        tree.add(number, pane)
    for end in range(76, 111, 5):
        whole = tree.merged(end - 75, end)
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

    def tree_of() -> WindowTree[Any]:
        tree: WindowTree[Any] = WindowTree(
            lambda: subject.empty(GROUPS), lambda s: np.array([s.size_bytes])
        )
        for number, pane in enumerate(panes):
            tree.add(number, pane)
        return tree

    lived, fresh = tree_of(), tree_of()
    for end in range(100, 201):
        told = lived.merged(end - 100, end)
    again = fresh.merged(100, 200)
    assert told is not None
    assert again is not None
    assert told.to_bytes() == again.to_bytes()


def test_a_tree_of_counts_counts() -> None:
    tree = WindowTree(lambda: GroupedCount(1), lambda s: np.array([s.size_bytes]))
    for number in range(100):
        pane = GroupedCount(1)
        pane.update(None, number)
        tree.add(number, pane)
    whole = tree.merged(10, 90)
    assert whole is not None
    assert whole.counts.tolist() == [sum(range(10, 90))]
    assert tree.merged(200, 300) is None
    assert tree.merged(50, 50) is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_without_room_a_window_costs_little_more_than_merging_all(share: float) -> None:
    leaves = 500
    free = letters_tree()
    for number in range(leaves):
        free.add(number, Letters((number,)))
    free.merged(0, leaves)
    tree = letters_tree()
    tree.limit((free.size * share).astype(np.int64))
    costs = []
    for number in range(-leaves, leaves):
        tree.add(number, Letters((number,)))
        tree.drop_before(number - leaves + 1)
        Letters.merges = 0
        whole = tree.merged(number - leaves + 1, number + 1)
        costs.append(Letters.merges)
        assert numbers_of(whole) == tuple(range(max(-leaves, number - leaves + 1), number + 1))
        assert tree.size.sum() <= free.size.sum() * share
    assert max(costs) <= 1.1 * leaves
    assert share == 0.0 or np.mean(costs[leaves:]) < 0.8 * leaves
