"""Texts of the keys that panes hold, by the hashes by which panes know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.dataflow.batch_rows import take_values
from shedder.dataflow.changes import Int64s
from shedder.dataflow.sampled_joins.window_panes import WindowPanes
from synopses.joins.closed_panes import NO_KEYS, ClosedPane
from synopses.joins.key_merges import united
from synopses.joins.key_tables import Words
from synopses.joins.pane_counts import PaneCounts

_KEY_BYTES = 12  # A hash, and the offset of a text.
_TABLE_SHARE = 1.25  # Keys of a pane over those that its sample aims at: they vary.


@dataclass(frozen=True, slots=True, eq=False)
class LabelledKeys:
    """Texts of some keys. keys: uint64 [keys], ascending. texts: of each."""

    keys: Words
    texts: pa.Array[Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of both arrays."""
        return self.keys.nbytes + self.texts.nbytes

    def at(self, places: Int64s) -> LabelledKeys:
        """Return some of the keys."""
        return LabelledKeys(self.keys[places], take_values(self.texts, places))

    def where(self, kept: NDArray[np.bool_]) -> LabelledKeys:
        """Return some of the keys."""
        return self if kept.all() else self.at(np.flatnonzero(kept))

    def has(self, keys: Words) -> NDArray[np.bool_]:
        """Return which of some keys are among these."""
        if not len(self.keys):
            return np.zeros(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: NDArray[np.bool_] = self.keys[at] == keys
        return found

    def texts_of(self, keys: Words) -> pa.Array[Any]:
        """Return the texts of some of these keys."""
        return take_values(self.texts, np.searchsorted(self.keys, keys))

    def with_others(self, other: LabelledKeys) -> LabelledKeys:
        """Return these keys with other ones."""
        keys = np.concatenate([self.keys, other.keys])
        texts: pa.Array[Any] = pa.concat_arrays([self.texts, other.texts])
        return LabelledKeys(keys, texts).at(np.argsort(keys))


_NONE = LabelledKeys(NO_KEYS, pa.array([], pa.string()))


class KeyLabels:
    """Texts of the keys that the panes of one window hold. Panes are known by instants of birth.

    Texts that are longer than a number of bytes are not kept, so that all find room.
    """

    def __init__(self, length_max: int) -> None:
        """A window without panes. length_max: of a text, in bytes."""
        self._length_max = length_max
        self._open: dict[int, LabelledKeys] = {}
        self._closed: dict[int, LabelledKeys] = {}

    @staticmethod
    def length_max(size_bytes: int, panes: int, keys: int) -> int:
        """Return how long texts may be.

        Args:
          size_bytes: for the texts of all panes. panes: their number. keys: that a pane aims at.
        """
        return int(size_bytes / (panes + 1) / (_TABLE_SHARE * keys)) - _KEY_BYTES

    @property
    def size_bytes(self) -> int:
        """Bytes of all panes."""
        return sum(it.size_bytes for of in (self._open, self._closed) for it in of.values())

    def add(self, born_us: int, pane: PaneCounts, hashes: Words, texts: pa.Array[Any]) -> None:
        """Keep texts of rows that a pane has counted, for the keys that it holds."""
        known = self._open.get(born_us, _NONE)
        rows = np.flatnonzero(pane.holds(hashes))
        rows = rows[~known.has(hashes[rows])]
        if len(rows):
            keys, first = np.unique(hashes[rows], return_index=True)
            found = LabelledKeys(keys, take_values(texts, rows[first]))
            known = known.with_others(self._short(found))
        self._open[born_us] = known.where(pane.holds(known.keys))

    def follow(self, window: WindowPanes) -> None:
        """Close and forget the panes that a window has closed and forgotten."""
        for born_us in [each for each in self._open if each not in window.open]:
            found = self._open.pop(born_us)
            if born_us in window.closed:
                self._closed[born_us] = _held(found, window.closed[born_us])
        for born_us in [each for each in self._closed if each not in window.closed]:
            del self._closed[born_us]

    def shorten(self, length_max: int, window: WindowPanes) -> None:
        """Have texts of other lengths at most; those of panes that are there never grow.

        window: after its panes have been brought into other sizes.
        """
        self._length_max = length_max
        for born_us, known in self._open.items():
            short = self._short(known)
            self._open[born_us] = short.where(window.open[born_us].holds(short.keys))
        for born_us, known in self._closed.items():
            self._closed[born_us] = _held(self._short(known), window.closed[born_us])

    def known(self) -> LabelledKeys:
        """Return the keys of all closed panes."""
        every = [_NONE, *self._closed.values()]
        keys = np.concatenate([it.keys for it in every])
        texts: pa.Array[Any] = pa.concat_arrays([it.texts for it in every])
        keys, first = np.unique(keys, return_index=True)
        return LabelledKeys(keys, take_values(texts, first))

    def _short(self, of: LabelledKeys) -> LabelledKeys:
        """Return the keys whose texts are not too long."""
        texts: Any = of.texts
        is_short = np.asarray(pc.binary_length(texts)) <= self._length_max
        return of.where(is_short)


def _held(known: LabelledKeys, pane: ClosedPane) -> LabelledKeys:
    """Return the keys that a pane holds."""
    held = united([pane.heavy.keys, pane.sampled.keys])
    return known.where(np.isin(known.keys, held, assume_unique=True))
