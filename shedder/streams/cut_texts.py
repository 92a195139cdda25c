"""Cut texts: beginnings that stand for texts which are too long to be kept whole.

A cut text ends in `MARK`. It stands for a text that begins with what is before the mark. So the
order of two texts is known from their beginnings, and an aggregate over cut texts stays right: its
value is a beginning, without a bound. A whole text that happens to end in `MARK` has no bound
either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from synopses.kernels.string_sizes import CHARACTER_BYTES, OTHER_BYTES, string_bytes, strings_bytes
from synopses.model.estimate import Bound, Estimates

MARK: Final = "\x1a\x00cut\x1a"  # ASCII, so that a text takes no more bytes a character with it.
REASON: Final = "the text was too long to be kept whole; the value is its beginning"
CUT_SHARE: Final = 0.75  # A cut leaves a quarter of the bytes free: texts get longer step by step.
_SHORTEST_BYTES: Final = 128  # No text is cut to less.


def is_cut(texts: Iterable[str | None]) -> NDArray[np.bool_]:
    """Return which of these texts are cut; None is not."""
    return np.array([text is not None and text.endswith(MARK) for text in texts], np.bool_)


def pick(one: NDArray[Any], other: NDArray[Any], *, least: bool) -> NDArray[Any]:
    """Return the smaller or the greater text of each pair; object [texts], none is None.

    If one text begins like the other, which is cut, the text with the shorter beginning is
    returned: it stands for either.
    """
    better: NDArray[Any] = np.minimum(one, other) if least else np.maximum(one, other)
    for row in np.flatnonzero(is_cut(one) | is_cut(other)).tolist():
        better[row] = _pick(one[row], other[row], least=least)
    return better


def _pick(one: str, other: str, *, least: bool) -> str:
    first, second = one.removesuffix(MARK), other.removesuffix(MARK)
    if one.endswith(MARK) and second.startswith(first):
        return one
    if other.endswith(MARK) and first.startswith(second):
        return other
    return one if (first < second) == least else other


def held_bytes(columns: Sequence[NDArray[Any]]) -> int:
    """Return the bytes of the distinct objects of aligned columns; object [texts] each."""
    return int(_sizes(columns).sum())


def cut_to(columns: Sequence[NDArray[Any]], size_bytes: float) -> None:
    """Cut the longest texts of aligned columns, in place, until all take this many bytes.

    All texts that are cut get about the same length, and no text is cut to less than 128 bytes.
    """
    sizes = _sizes(columns)
    ascending = np.sort(sizes[sizes > 0])
    shorter = np.append(0, np.cumsum(ascending))[:-1]  # Bytes of the texts before each.
    level = (size_bytes - shorter) / np.arange(len(ascending), 0, -1)
    fits = np.flatnonzero(level < ascending)
    if not len(fits):
        return
    longest = max(float(level[fits[0]]), _SHORTEST_BYTES)
    held = [text for column in columns for text in column if string_bytes(text) > longest]
    made = {id(text): _cut(text, longest) for text in held}  # Texts that are one object stay one.
    for column in columns:
        rows = np.flatnonzero([id(text) in made for text in column])
        column[rows] = [made[id(text)] for text in column[rows]]


def _cut(text: str, longest: float) -> str:
    left = longest - OTHER_BYTES
    characters = int(left if text.isascii() else left / CHARACTER_BYTES) - len(MARK)
    return text.removesuffix(MARK)[: max(characters, 0)] + MARK


def _sizes(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Bytes of each text, int64 [texts of all columns]; 0 where an earlier column has the same."""
    sizes = []
    for at, column in enumerate(columns):
        again = np.zeros(len(column), np.bool_)
        for before in columns[:at]:
            again |= np.array([a is b for a, b in zip(column, before, strict=True)], np.bool_)
        sizes.append(np.where(again, 0, strings_bytes(column)))
    return np.concatenate(sizes)


def exact_unless_cut(texts: NDArray[Any], source: str, null: NDArray[np.bool_]) -> Estimates:
    """Return texts as exact values; a cut text is its beginning, without a bound."""
    cut = is_cut(texts)
    if not cut.any():
        return Estimates.exact(texts, source, null)
    shown = texts.copy()
    shown[cut] = [text.removesuffix(MARK) for text in texts[cut]]
    bound = np.where(cut, np.uint8(Bound.NONE), np.uint8(Bound.EXACT)).astype(np.uint8)
    return replace(Estimates.exact(shown, source, null), bound=bound, reason=REASON)
