"""Which rows of a view each synopsis reads, when some of them are thinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.engine.known import known_of
from shedder.engine.pane import Pane, PartInput
from shedder.engine.plan import BY_HASH, TAILED, Part, Plan
from shedder.streams import far_rows
from shedder.streams.frame import Frame, Known, Thinned
from shedder.streams.group_keys import GroupKeys
from shedder.streams.tails import FAR_LEVEL_MAX

_Grouped = tuple[Thinned, NDArray[np.int32] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What one part reads of a view.

    level, thinned, given: what is kept of the view at the part's level, as its input. far, all_far:
    what lies far out and is read in full beside that, and is not among it; None: nothing does.
    """

    number: int
    part: Part
    level: int
    thinned: Thinned
    given: PartInput
    far: Thinned | None = None
    all_far: PartInput | None = None

    def read(self, held: Pane, view: Frame, first: int, last: int, groups: int) -> int:
        """Read the view's rows first to last (exclusive) into a pane.

        Returns:
          How many of them were read.
        """
        rows = self.thinned.between(first, last)
        values = held.update_at(self.number, self.level, self.given, rows, groups)
        read = rows[1] - rows[0]
        if self.far is not None and self.all_far is not None:
            rows = self.far.between(first, last)
            held.update_at(self.number, 0, self.all_far, rows, groups)
            read += rows[1] - rows[0]
        if self.level:
            held.segment(self.number, self.level).notice(self._known(view, first, last), values)
        return read

    def _known(self, view: Frame, first: int, last: int) -> Known:
        """Of what there was to be thinned."""
        if self.far is None:
            return known_of(self.part, view, first, last)
        assert self.part.argument is not None
        return far_rows.known_near(view, self.part.argument, first, last)


class Choice:
    """Of one view: which rows are kept at each level, and which groups they are of, found once."""

    def __init__(self, view: Frame, keys: GroupKeys | None, levels: Sequence[int]) -> None:
        """The smallest level comes first, so that rows that are counted name the first groups."""
        self._view = view
        self._keys = keys
        self._kept = {level: self._grouped(view.thinned(level)) for level in sorted(set(levels))}
        self._apart: dict[int, _Grouped] = {}  # by what it is

    def of(self, plan: Plan, levels: Sequence[int]) -> Iterator[Chosen]:
        """What each part reads, in order."""
        for number, (part, level) in enumerate(zip(plan.parts, levels, strict=True)):
            thinned, ids = self._kept[level]
            far = None
            if level and part.argument is not None:
                if part.kind in BY_HASH:
                    thinned, ids = self._grouped(self._view.thinned_by(part.argument, level))
                elif part.kind in TAILED and level <= FAR_LEVEL_MAX:
                    far = far_rows.far(self._view, part.argument)
            if far is None or part.argument is None:
                given = PartInput(part, thinned.frame, ids, level=level)
                yield Chosen(number, part, level, thinned, given)
                continue
            far, far_ids = self._once(far)
            thinned, ids = self._once(far_rows.near(self._view, part.argument, level))
            given = PartInput(part, thinned.frame, ids, level=level)
            all_far = PartInput(part, far.frame, far_ids)
            yield Chosen(number, part, level, thinned, given, far, all_far)

    def _once(self, thinned: Thinned) -> _Grouped:
        """Rows that several parts read; the view keeps them alive."""
        if id(thinned) not in self._apart:
            self._apart[id(thinned)] = self._grouped(thinned)
        return self._apart[id(thinned)]

    def _grouped(self, thinned: Thinned) -> _Grouped:
        return thinned, None if self._keys is None else self._keys.assign(thinned.frame)
