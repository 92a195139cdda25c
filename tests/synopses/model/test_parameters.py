"""Parameters of all kinds: what no summary can be built with is refused by name, with its value."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.entries import ItemKind
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.group_table import GroupTable
from synopses.model.binary_header import Kind
from synopses.model.errors import BadParameter
from synopses.moments.counts import GroupedCount
from synopses.moments.covariance import GroupedCrossMoments
from synopses.moments.first_last import GroupedFirstLast
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.theta_sketch import GroupedTheta


@dataclass(frozen=True, slots=True)
class Whole:
    """A parameter that is a whole number in a range, and maybe not each one there."""

    least: int
    most: int
    fits: Callable[[int], bool] = lambda _: True

    def good(self) -> Any:
        return [self.least, np.int64(self.least)]

    def bad(self) -> st.SearchStrategy[Any]:
        outside = st.integers(max_value=self.least - 1) | st.integers(min_value=self.most + 1)
        unfit = st.integers(self.least, self.most).filter(lambda number: not self.fits(number))
        others = st.floats() | st.booleans() | st.text(max_size=3) | st.none()
        return outside | others if self.fits(self.least + 1) else outside | unfit | others


@dataclass(frozen=True, slots=True)
class Choice:
    """One of few values; flags are bool, so that 0 and "no" are none."""

    values: tuple[Any, ...]

    def good(self) -> Any:
        return self.values

    def bad(self) -> st.SearchStrategy[Any]:
        return st.integers() | st.floats() | st.text(max_size=3) | st.none()


@dataclass(frozen=True, slots=True)
class Positive:
    """Any number that is not negative."""

    def good(self) -> Any:
        return (0, 0.0, 1e300, float("inf"))

    def bad(self) -> st.SearchStrategy[Any]:
        return (
            st.floats(max_value=-1e-300) | st.just(float("nan")) | st.text(max_size=3) | st.none()
        )


Range = Whole | Choice | Positive
GROUPS, FLAG, ROWS = Whole(0, 2**31 - 1), Choice((True, False, np.True_)), Whole(1, 2**63 - 1)
KEY = Whole(0, 2**64 - 1)
TABLE: Mapping[str, Range] = {"groups": GROUPS, "lg_width": Whole(4, 24), "seed": KEY}
KINDS: Mapping[Any, Mapping[str, Range]] = {
    GroupedCount: {"groups": GROUPS},
    GroupedMoments: {"groups": GROUPS, "integer": FLAG, "variance": FLAG},
    GroupedCrossMoments: {"groups": GROUPS},
    GroupedFirstLast: {"groups": GROUPS, "integer": FLAG},
    GroupedDistinct: {"groups": GROUPS, "lg_k": Whole(7, 21)},
    GroupedTheta: {"groups": GROUPS, "lg_k": Whole(5, 26)},
    GroupedLogBuckets: {"groups": GROUPS},
    GroupedKll: {"groups": GROUPS, "k": Whole(8, 65_535)},
    GroupedReq: {"groups": GROUPS, "k": Whole(12, 254, lambda k: k % 2 == 0), "high": FLAG},
    GroupedFrequent: {
        "groups": GROUPS,
        "entries": Whole(8, 1 << 20, lambda entries: entries & (entries - 1) == 0),
        "items": Choice(tuple(ItemKind)),
    },
    GroupedCountMin: TABLE,
    GroupedCountSketch: TABLE,
    GroupTable: {"groups_max": Whole(0, 2**30 - 1)},
    BottomK: {"k": ROWS, "threshold": KEY},
    HashSample: {"rows_max": ROWS, "threshold": KEY},
    WeightedBottomK: {"k": ROWS, "tau": Positive()},
    StratifiedBottomK: {"groups": GROUPS, "k": ROWS},
}
STATE = {"keys", "hashes", "weights", "priorities"}  # Of samples: arrays, not parameters.
GIVEN = {
    "groups": 1, "integer": True, "entries": 64, "k": 12, "groups_max": 1, "rows_max": 1,
}  # fmt: skip
EACH = [
    pytest.param(kind, name, id=f"{kind.__name__}-{name}") for kind in KINDS for name in KINDS[kind]
]


def made(kind: Any, **parameters: Any) -> Any:
    needed = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.default is parameter.empty
    ]
    return kind(**{name: GIVEN[name] for name in needed} | parameters)


def test_no_kind_and_no_parameter_is_left_out() -> None:
    assert len(KINDS) == len(Kind)
    for kind, ranges in KINDS.items():
        assert set(inspect.signature(kind).parameters) - STATE == set(ranges)


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_the_values_of_a_range_are_taken(kind: Any, name: str) -> None:
    for value in KINDS[kind][name].good():
        held = getattr(made(kind, **{name: value}), name)
        assert held == value or callable(held)  # `variance` is a question to moments.


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), EACH)
@given(data=st.data())
def test_bad_values_are_refused_by_name_with_what_would_be_right(
    kind: Any, name: str, data: st.DataObject
) -> None:
    value = data.draw(KINDS[kind][name].bad())
    with pytest.raises(BadParameter, match=f"^{name} is {re.escape(repr(value))}, expected .+"):
        made(kind, **{name: value})


RESIZED = [kind for kind in KINDS if hasattr(kind, "resize")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", RESIZED, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_sizes_are_held_to_the_same(kind: Any, data: st.DataObject) -> None:
    name = kind.profile.size
    sizes = KINDS[kind][name] if name in KINDS[kind] else Whole(0, 7)
    value = data.draw(sizes.bad())
    with pytest.raises(BadParameter, match=f"^{name} is {re.escape(repr(value))}, expected .+"):
        made(kind).resize(value)


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "1", None])
def test_what_is_no_level_and_no_length_of_a_list_is_refused(wrong: Any) -> None:
    with pytest.raises(BadParameter, match="level is"):
        GroupedTheta(1).thin(wrong)
    with pytest.raises(BadParameter, match="k is"):
        GroupedFrequent(1, 16).top(wrong)


def test_a_list_may_be_asked_for_that_is_longer_than_any() -> None:
    counts = GroupedFrequent(1, 16)
    counts.update(None, np.arange(5, dtype=np.uint64), np.arange(5))
    assert len(counts.top(2**63 - 1)[0]) == 5
