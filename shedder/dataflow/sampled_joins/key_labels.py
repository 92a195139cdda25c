"""Labels of the keys that panes hold: a value for each key, such as its text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.dataflow.batch_rows import take_values
from shedder.dataflow.changes import Int64s
from shedder.dataflow.key_directory import hash_columns
from shedder.dataflow.sampled_joins.window_panes import WindowPanes
from synopses.joins.closed_panes import ClosedPane
from synopses.joins.key_merges import united
from synopses.joins.key_tables import Words
from synopses.joins.pane_counts import PaneCounts

_KEY_BYTES = 22  # Two hashes, the offset of a text, and whether a key is mixed.
_TABLE_SHARE = 1.25  # Keys of a pane over those that its sample aims at: they vary.


@dataclass(frozen=True, slots=True, eq=False)
class LabelledKeys:
    """Labels of some keys: a value of each.

    keys: uint64 [keys], ascending. hashes: uint64 [keys], of the labels. labels: the first one of
    each key; NULL for one that is too long. is_mixed: bool [keys], whether a key has several.
    """

    keys: Words
    hashes: Words
    labels: pa.Array[Any]
    is_mixed: NDArray[np.bool_]

    @classmethod
    def of_rows(cls, keys: Words, labels: pa.Array[Any]) -> LabelledKeys:
        """The labels of rows. keys: of each row, in any order."""
        hashes = hash_columns([labels])
        found, first, row_keys = np.unique(keys, return_index=True, return_inverse=True)
        is_mixed = np.zeros(len(found), np.bool_)
        is_mixed[row_keys[hashes != hashes[first][row_keys]]] = True
        return cls(found, hashes[first], take_values(labels, first), is_mixed)

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        fixed = self.keys.nbytes + self.hashes.nbytes + self.is_mixed.nbytes
        return fixed + self.labels.nbytes

    def at(self, places: Int64s) -> LabelledKeys:
        """Return some of the keys."""
        labels = take_values(self.labels, places)
        return LabelledKeys(self.keys[places], self.hashes[places], labels, self.is_mixed[places])

    def where(self, kept: NDArray[np.bool_]) -> LabelledKeys:
        """Return some of the keys."""
        return self if kept.all() else self.at(np.flatnonzero(kept))

    def with_others(self, *others: LabelledKeys) -> LabelledKeys:
        """Return these keys with those of other lists; a key with several labels is mixed."""
        every = (self, *(each for each in others if len(each.keys)))
        if len(every) == 1:
            return self
        keys = np.concatenate([each.keys for each in every])
        hashes = np.concatenate([each.hashes for each in every])
        mixed = np.concatenate([each.is_mixed for each in every])
        labels: pa.Array[Any] = pa.concat_arrays([each.labels for each in every])
        order = np.argsort(keys, kind="stable")
        is_first = np.append(True, keys[order][1:] != keys[order][:-1])
        place = np.cumsum(is_first) - 1
        first = order[is_first]
        is_mixed = np.zeros(len(first), np.bool_)
        is_mixed[place[mixed[order] | (hashes[order] != hashes[first][place])]] = True
        return LabelledKeys(keys[first], hashes[first], take_values(labels, first), is_mixed)

    def labels_of(self, keys: Words) -> pa.Array[Any]:
        """Return the labels of some of these keys."""
        return take_values(self.labels, np.searchsorted(self.keys, keys))


class KeyLabels:
    """Labels of the keys that the panes of one window hold. Panes are known by instants of birth.

    Texts that are longer than a number of bytes are not kept, so that all find room.
    """

    def __init__(self, length_max: int) -> None:
        """A window without panes. length_max: of a text, in bytes."""
        self._length_max = length_max
        self._open: dict[int, list[LabelledKeys]] = {}  # Lists of a pane, ever shorter ones.
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
        return sum(
            it.size_bytes for of in (*self._open.values(), self._closed.values()) for it in of
        )

    def add(self, born_us: int, pane: PaneCounts, keys: Words, labels: pa.Array[Any]) -> None:
        """Keep labels of rows that a pane has counted, for the keys that it holds."""
        rows = np.flatnonzero(pane.holds(keys))
        found = self._short(LabelledKeys.of_rows(keys[rows], take_values(labels, rows)))
        lists = self._open.setdefault(born_us, [])
        lists.append(found)
        while len(lists) > 1 and 2 * len(lists[-2].keys) <= 3 * len(lists[-1].keys):
            later = lists.pop()
            known = lists.pop()
            lists.append(known.where(pane.holds(known.keys)).with_others(later))

    def follow(self, window: WindowPanes) -> None:
        """Close and forget the panes that a window has closed and forgotten."""
        for born_us in [each for each in self._open if each not in window.open]:
            first, *later = self._open.pop(born_us)
            if born_us in window.closed:
                found = first.with_others(*later)
                self._closed[born_us] = _held(found, window.closed[born_us])
        for born_us in [each for each in self._closed if each not in window.closed]:
            del self._closed[born_us]

    def shorten(self, length_max: int, window: WindowPanes) -> None:
        """Have texts of other lengths at most; those of panes that are there never grow.

        window: after its panes have been brought into other sizes.
        """
        self._length_max = length_max
        for born_us, lists in self._open.items():
            short = self._short(lists[0].with_others(*lists[1:]))
            self._open[born_us] = [short.where(window.open[born_us].holds(short.keys))]
        for born_us, known in self._closed.items():
            self._closed[born_us] = _held(self._short(known), window.closed[born_us])

    def known(self) -> LabelledKeys | None:
        """Return the keys of all closed panes; None: there are no panes."""
        every = list(self._closed.values())
        return every[0].with_others(*every[1:]) if every else None

    def _short(self, of: LabelledKeys) -> LabelledKeys:
        """Return keys with NULL in place of labels that are too long."""
        if not pa.types.is_string(of.labels.type):
            return of
        labels: Any = of.labels
        lengths = pc.fill_null(pc.binary_length(labels), 0)
        is_long = np.asarray(lengths) > self._length_max
        if not is_long.any():
            return of
        return replace(of, labels=pc.if_else(pa.array(is_long), None, labels))


def _held(known: LabelledKeys, pane: ClosedPane) -> LabelledKeys:
    """Return the keys that a pane holds."""
    held = united([pane.heavy.keys, pane.sampled.keys])
    return known.where(np.isin(known.keys, held, assume_unique=True))
