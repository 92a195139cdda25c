"""What the least and the greatest texts of groups are said to hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.streams.text_extremes import GroupedTextExtremes


def held(groups: int, some: int) -> GroupedTextExtremes:
    """Of so many groups the first have a text of forty letters."""
    extremes = GroupedTextExtremes(groups)
    texts = pa.array([f"{number:040}" for number in range(some)])
    extremes.update(np.arange(some, dtype=np.int32), texts)
    return extremes


def test_groups_without_a_value_hold_no_text_and_those_with_one_hold_it_once() -> None:
    text = 96  # 49 and 40 bytes, rounded up as CPython does.
    assert held(1_000, 10).size_bytes == 16 * 1_000 + 10 * text
    extremes = held(1_000, 500)
    assert extremes.size_bytes == 16 * 1_000 + 500 * text
    extremes.update(np.arange(200, dtype=np.int32), pa.array(["z" * 40] * 200))
    assert extremes.size_bytes == 16 * 1_000 + 700 * text
    extremes.update(np.arange(200, dtype=np.int32), pa.array(["a" * 40] * 200))
    assert extremes.size_bytes == 16 * 1_000 + 700 * text


def test_what_was_selected_merged_or_stored_holds_its_texts() -> None:
    whole = held(1_000, 500)
    everybody = np.arange(1_000)
    for same in (
        whole.select(everybody),
        whole.scatter(everybody, 1_000),
        GroupedTextExtremes(0).merge(whole),
        GroupedTextExtremes.from_bytes(whole.to_bytes()),
    ):
        assert same.size_bytes == pytest.approx(whole.size_bytes, rel=0.05)
    assert whole.merge(held(1_000, 500)).size_bytes == pytest.approx(whole.size_bytes)
