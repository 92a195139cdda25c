"""Bytes that were written before are read, or refused by name and number of their layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from synopses.model.binary_header import LAYOUTS, Kind
from synopses.model.errors import CorruptSynopsis
from tests.synopses.golden import FILES, IDS, MADE, VALUES, file_of

RANDOM = {Kind.KLL, Kind.REQ}  # The library draws bits.
PRESENT = {file_of(kind, LAYOUTS[kind]) for kind in Kind}


def test_every_kind_has_a_layout_and_a_summary_here() -> None:
    assert set(LAYOUTS) == set(MADE) == set(Kind)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name.lower())
def test_what_was_written_is_read_and_written_again(kind: Kind) -> None:
    data = file_of(kind, LAYOUTS[kind]).read_bytes()
    made = MADE[kind]()
    assert data[4] == LAYOUTS[kind]
    assert type(made).from_bytes(data).to_bytes() == data
    if kind not in RANDOM:
        assert made.to_bytes() == data, "another layout needs another number in binary_header.py"


@pytest.mark.parametrize("kind", sorted(RANDOM), ids=lambda kind: kind.name.lower())
def test_sketches_of_random_bits_are_of_the_same_values(kind: Kind) -> None:
    read = type(MADE[kind]()).from_bytes(file_of(kind, LAYOUTS[kind]).read_bytes())
    assert read.counts().tolist() == np.bincount(IDS).tolist()
    answer = read.quantile(0.5, 0.99)
    for group in range(3):
        truth = np.quantile(VALUES[group == IDS], 0.5, method="inverted_cdf")
        assert answer[group].holds(truth)


@pytest.mark.parametrize("path", sorted(FILES.glob("*.bin")), ids=lambda path: path.stem)
def test_older_layouts_are_refused_by_name_and_number(path: Path) -> None:
    name, layout = path.stem.split("-")
    kind = Kind[name.upper()]
    if path in PRESENT:
        return
    expected = f"layout of {name} is {layout}, expected {LAYOUTS[kind]}"
    with pytest.raises(CorruptSynopsis, match=expected):
        type(MADE[kind]()).from_bytes(path.read_bytes())
    assert int(layout) < LAYOUTS[kind]
