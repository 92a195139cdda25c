"""Texts that are too long to be kept: cut, flagged, and never in the wrong order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shedder.streams.cut_texts import MARK, cut_to, held_bytes, is_cut, pick
from shedder.streams.text_extremes import GroupedTextExtremes
from shedder.streams.text_first_last import GroupedTextFirstLast
from synopses.kernels.string_sizes import string_bytes
from synopses.model.estimate import Bound

texts = st.lists(st.text("abé😀", max_size=300), min_size=1, max_size=8)


def column(values: list[str | None]) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = values
    return made


@given(texts, st.integers(200, 4_000), st.booleans())
@example(["a" * 300, "a" * 200 + "b" * 100], 500, True)
def test_a_cut_extreme_is_a_beginning_of_the_true_one(
    values: list[str], size_bytes: int, least: bool
) -> None:
    """Texts come one by one, and are cut to another length each time."""
    truth = min(values) if least else max(values)
    kept = column(values[:1])
    for number, value in enumerate(values):
        kept = pick(kept, column([value]), least=least)
        cut_to([kept], size_bytes // (1 + number % 3))
    [found] = kept.tolist()
    assert truth.startswith(found.removesuffix(MARK))
    assert is_cut(kept).any() or found == truth


@given(st.lists(texts, min_size=1, max_size=3), st.integers(300, 20_000))
def test_the_longest_texts_are_cut_until_all_fit(columns: list[list[str]], size_bytes: int) -> None:
    rows = min(map(len, columns))
    kept = [column(each[:rows]) for each in columns]
    cut_to(kept, size_bytes)
    assert held_bytes(kept) <= max(size_bytes, 128 * rows * len(columns))
    for before, after in zip(columns, kept, strict=True):
        for text, left in zip(before, after.tolist(), strict=False):
            assert left == text or text.startswith(left.removesuffix(MARK))
            assert left == text or string_bytes(text) > 128


def test_a_cut_text_is_answered_as_its_beginning_without_a_bound() -> None:
    extremes = GroupedTextExtremes(2)
    values = pa.array(["a" * 9_000, "b" * 5_000, "c", "d"])
    extremes.update(np.array([0, 0, 1, 1], np.int32), values)
    extremes.hold_texts(10_000)
    for each in (
        extremes,
        GroupedTextExtremes.from_bytes(extremes.to_bytes()),
        GroupedTextExtremes(0).merge(extremes),
        extremes.select(np.arange(2)),
        extremes.scatter(np.arange(2), 2),
    ):
        least, greatest = each.minimum(), each.maximum()
        assert least.bound.tolist() == greatest.bound.tolist() == [Bound.NONE, Bound.EXACT]
        assert 2_000 < len(least.value[0]) < 9_000
        assert least.value[0].strip("a") == greatest.value[0].strip("b") == ""
        assert (least.value[1], greatest.value[1]) == ("c", "d")
        assert "too long" in least.reason
        assert each.size_bytes < 10_000 + 1_000


def test_a_shorter_text_replaces_a_cut_one_and_is_exact() -> None:
    extremes = GroupedTextExtremes(1)
    extremes.update(None, pa.array(["b" * 9_000]))
    extremes.hold_texts(1_000)
    assert extremes.minimum().bound.tolist() == [Bound.NONE]
    extremes.update(None, pa.array(["a", "bb"]))
    assert extremes.minimum().value.tolist() == ["a"]
    assert extremes.minimum().bound.tolist() == [Bound.EXACT]
    assert extremes.maximum().bound.tolist() == [Bound.NONE]


def test_many_groups_whose_texts_get_wide_stay_within_the_bytes() -> None:
    extremes, ends = GroupedTextExtremes(1_000), GroupedTextFirstLast(1_000)
    ids = np.arange(1_000, dtype=np.int32)
    for width in (10, 3_000):
        texts = pa.array([f"{number:04}".ljust(width, "x") for number in range(1_000)])
        extremes.update(ids, texts)
        ends.update(ids, ids.astype(np.int64) + width, ids.astype(np.int64) + 1_000 * width, texts)
        for each in (extremes, ends):
            each.hold_texts(1_000_000)
            assert each.text_bytes <= 1_000_000
    assert extremes.minimum().bound.tolist() == [Bound.EXACT] * 1_000
    assert extremes.maximum().bound.tolist() == [Bound.NONE] * 1_000
    assert ends.first().bound.tolist() == [Bound.EXACT] * 1_000
    assert ends.last().bound.tolist() == [Bound.NONE] * 1_000


def test_cut_first_and_last_texts_stay_those_of_their_times() -> None:
    ends = GroupedTextFirstLast(1)
    times, positions = np.array([1, 2]), np.array([0, 1])
    ends.update(None, times, positions, pa.array(["a" * 9_000, "b" * 9_000]))
    ends.hold_texts(8_000)
    again = GroupedTextFirstLast.from_bytes(ends.to_bytes())
    again.update(None, np.array([3]), np.array([2]), pa.array(["last"]))
    for each, last in ((ends, Bound.NONE), (again, Bound.EXACT)):
        assert each.first().bound.tolist() == [Bound.NONE]
        assert each.first().value[0].strip("a") == ""
        assert each.last().bound.tolist() == [last]
    assert again.last().value.tolist() == ["last"]


@pytest.mark.parametrize("kind", [GroupedTextExtremes, GroupedTextFirstLast])
def test_texts_that_fit_are_left_alone(kind: type) -> None:
    synopsis = kind(1)
    if kind is GroupedTextExtremes:
        synopsis.update(None, pa.array(["é" * 100, "z"]))
    else:
        synopsis.update(None, np.array([1, 2]), np.array([0, 1]), pa.array(["é" * 100, "z"]))
    before = synopsis.to_bytes()
    synopsis.hold_texts(1_000)
    assert synopsis.to_bytes() == before
