"""What holds for every synopsis, stated once.

A `Subject` says how to build an empty summary, how to feed it a part of a stream, and what of it
must be equal when two summaries are the same. Exact state compares by its bytes; sums of doubles
compare by their answers, because addition in another order differs in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from synopses.model.profile import Profile


class Synopsis(Protocol):
    """The words that all grouped summaries share."""

    profile: ClassVar[Profile]

    @property
    def groups(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def grow(self, groups: int) -> None: ...
    def merge(self, other: Any) -> Any: ...
    def select(self, ids: NDArray[np.int64]) -> Any: ...
    def scatter(self, ids: NDArray[np.int64], groups: int) -> Any: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> Self: ...


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a stream: group ids (None: ungrouped) and values, aligned."""

    ids: NDArray[np.int32] | None
    values: NDArray[Any]

    def __getitem__(self, rows: slice) -> Part:
        return Part(None if self.ids is None else self.ids[rows], self.values[rows])

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of summary under test.

    empty: builds it for so many groups.
    feed: updates it with a part.
    state: what must be equal between equal summaries (to_bytes, or answers).
    thins: a part with rows lowers the share of all groups, also of groups without rows in it.
    """

    name: str
    empty: Callable[[int], Any]
    feed: Callable[[Any, Part], None]
    state: Callable[[Any], Any]
    thins: bool = False

    def of(self, part: Part, groups: int) -> Any:
        """The summary of a part in one pass."""
        summary = self.empty(groups)
        self.feed(summary, part)
        return summary

    def assert_same(self, left: Any, right: Any) -> None:
        """Both summaries say the same."""
        np.testing.assert_equal(self.state(left), self.state(right))


def halves_equal_one_pass(subject: Subject, part: Part, groups: int, cut: int) -> None:
    merged = subject.of(part[:cut], groups).merge(subject.of(part[cut:], groups))
    subject.assert_same(merged, subject.of(part, groups))


def batches_equal_one_pass(subject: Subject, part: Part, groups: int, rows: int) -> None:
    summary = subject.empty(groups)
    for start in range(0, len(part), rows):
        subject.feed(summary, part[start : start + rows])
    subject.assert_same(summary, subject.of(part, groups))


def merging_commutes(subject: Subject, left: Part, right: Part, groups: int) -> None:
    one = subject.of(left, groups).merge(subject.of(right, groups))
    other = subject.of(right, groups).merge(subject.of(left, groups))
    subject.assert_same(one, other)


def merging_associates(subject: Subject, parts: tuple[Part, Part, Part], groups: int) -> None:
    a, b, c = parts
    left = subject.of(a, groups).merge(subject.of(b, groups)).merge(subject.of(c, groups))
    right = subject.of(a, groups).merge(subject.of(b, groups).merge(subject.of(c, groups)))
    subject.assert_same(left, right)


def merging_nothing_changes_nothing(subject: Subject, part: Part, groups: int) -> None:
    subject.assert_same(subject.of(part, groups).merge(subject.empty(0)), subject.of(part, groups))
    subject.assert_same(
        subject.empty(groups).merge(subject.of(part, groups)), subject.of(part, groups)
    )


def merging_leaves_the_other_alone(subject: Subject, left: Part, right: Part, groups: int) -> None:
    other = subject.of(right, groups)
    for summary in (subject.of(left, groups), subject.empty(groups), subject.empty(0)):
        subject.feed(summary.merge(other), left)
        summary.merge(subject.of(left, groups))
        subject.assert_same(other, subject.of(right, groups))


def merging_itself_is_merging_a_copy(subject: Subject, part: Part, groups: int) -> None:
    summary, other = subject.of(part, groups), subject.of(part, groups)
    subject.assert_same(summary.merge(summary), other.merge(subject.of(part, groups)))


def what_is_merged_into_nothing_goes_on(
    subject: Subject, part: Part, more: Part, groups: int
) -> None:
    """It is a copy: of summaries that forget, too."""
    summary = subject.of(part, groups)
    copy = subject.empty(0).merge(summary)
    subject.assert_same(copy, summary)
    for one in (copy, summary):
        subject.feed(one, more)
        one.merge(subject.of(part, groups))
    subject.assert_same(copy, summary)


def resizing_commutes_with_merging(
    subject: Subject, left: Part, right: Part, groups: int, size: int
) -> None:
    """Smaller then merged is merged then smaller, and as if it had always been small."""
    apart = subject.of(left, groups).resize(size).merge(subject.of(right, groups).resize(size))
    together = subject.of(left, groups).merge(subject.of(right, groups)).resize(size)
    subject.assert_same(apart, together)
    fed = subject.empty(groups).resize(size)
    subject.feed(fed, left)
    subject.feed(fed, right)
    subject.assert_same(fed, together)


def bytes_round_trip(subject: Subject, part: Part, groups: int) -> None:
    summary = subject.of(part, groups)
    data = summary.to_bytes()
    back = type(summary).from_bytes(data)
    assert back.groups == summary.groups
    assert back.to_bytes() == data
    subject.assert_same(back, summary)
    subject.feed(back, part)
    subject.feed(summary, part)
    subject.assert_same(back, summary)


def scatter_undoes_select(subject: Subject, part: Part, groups: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(groups).astype(np.int64)
    summary = subject.of(part, groups)
    subject.assert_same(summary.select(order).scatter(order, groups), summary)


def selecting_is_feeding_only_these(subject: Subject, part: Part, groups: int) -> None:
    assert part.ids is not None
    kept = np.arange(groups - 1, -1, -2, dtype=np.int64)
    place = np.full(groups, -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    inside = place[part.ids] >= 0
    if subject.thins and not inside.any():
        return  # No rows lower the share of `alone`; rows of other groups do so on the left.
    alone = subject.of(Part(place[part.ids[inside]], part.values[inside]), len(kept))
    subject.assert_same(subject.of(part, groups).select(kept), alone)


def growing_is_starting_bigger(subject: Subject, part: Part, groups: int) -> None:
    grown = subject.empty(1)
    grown.grow(groups)
    subject.feed(grown, part)
    subject.assert_same(grown, subject.of(part, groups))


def hold(subject: Subject, part: Part, groups: int, cut: int) -> None:
    """All laws on one stream."""
    third = len(part) // 3
    halves_equal_one_pass(subject, part, groups, cut)
    batches_equal_one_pass(subject, part, groups, max(1, len(part) // 5))
    merging_commutes(subject, part[:cut], part[cut:], groups)
    merging_associates(subject, (part[:third], part[third : 2 * third], part[2 * third :]), groups)
    merging_nothing_changes_nothing(subject, part, groups)
    merging_leaves_the_other_alone(subject, part[:cut], part[cut:], groups)
    hold_for_one(subject, part, groups)


def hold_for_one(subject: Subject, part: Part, groups: int) -> None:
    """The laws of one summary (for those whose merge is only as good as one pass, not equal)."""
    what_is_merged_into_nothing_goes_on(subject, part, part[: len(part) // 2], groups)
    merging_itself_is_merging_a_copy(subject, part, groups)
    bytes_round_trip(subject, part, groups)
    scatter_undoes_select(subject, part, groups, seed=len(part))
    growing_is_starting_bigger(subject, part, groups)
    if part.ids is not None:
        selecting_is_feeding_only_these(subject, part, groups)
