"""Decoding of synopses that another process has built of one part of a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from shedder.engine.panes.synopsis_resizing import size_of
from shedder.engine.synopsis_plans.synopsis_factory import class_of, make, make_thinned
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec
from shedder.streams import text_extremes, text_first_last
from shedder.streams.batches import check_texts
from synopses.model.errors import CorruptSynopsis

Seen = dict[tuple["PartImages", bytes, int], Any]
_SHARED = (
    SynopsisKind.COUNT,
    SynopsisKind.MOMENTS,
)  # They are merged into others, and never resized.
_TEXTS = {  # Arrow inside, which is checked before it is read.
    SynopsisKind.EXTREMES: text_extremes.IMAGE,
    SynopsisKind.TEXT_FIRST_LAST: text_first_last.IMAGE,
}


class PartImages:
    """What is looked up once for all panes that have the part."""

    def __init__(self, part: SynopsisSpec, *, thinned: bool) -> None:
        """Read this part, as it is read in full or thinned."""
        self._part, self._thinned = part, thinned
        self._text = _TEXTS.get(part.kind)
        self._is_shared = part.kind in _SHARED
        self._from_bytes = class_of(part, thinned=thinned).from_bytes
        self._none = make_thinned(part) if thinned else make(part, 0)

    def read_once(self, image: bytes, groups: int, seen: Seen) -> Any:
        """The same synopsis for the same bytes: queries of one window count the same rows.

        Only of kinds that stay as they were read, and not by group: to compare so many bytes takes
        longer than to read them. Raises: as `read`.
        """
        if not self._is_shared or groups > 1:
            return self.read(image, groups)
        place = self, image, groups
        found = seen.get(place)
        if found is None:
            found = seen[place] = self.read(image, groups)
        return found

    def read(self, image: bytes, groups: int) -> Any:
        """A synopsis of any size, over so many groups.

        Raises:
          BadBatch: there is no Arrow inside, where there should be.
          CannotMerge: it is of another kind than the part's own.
          CorruptSynopsis: it is damaged, or has more groups than there are.
        """
        if self._text is not None:
            check_texts(image, self._text)
        read = self._from_bytes(image)
        if read.groups != groups:
            if read.groups > groups:
                raise CorruptSynopsis("groups", read.groups, groups)
            read.grow(groups)
        size = size_of(read)
        alike = self if not size or size == self._part.size else self._of_size(size)
        # Nothing is merged into what was read, so that it is checked against the plan, not copied.
        return read.merge(alike._none)

    def _of_size(self, size: int) -> PartImages:
        return images_of(replace(self._part, size=size), thinned=self._thinned)


@lru_cache(maxsize=256)
def images_of(part: SynopsisSpec, *, thinned: bool = False) -> PartImages:
    """Return the decoder of a part. Its empty synopsis is merged into others and never changes."""
    return PartImages(part, thinned=thinned)
