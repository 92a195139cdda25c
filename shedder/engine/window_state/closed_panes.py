"""Closed panes of one query, and the windows that are merged from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.pane import Pane
from shedder.engine.panes.sparse_groups import SPAN_MIN, are_few
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from synopses.kernels.grouped_arrays import grown
from synopses.windows.sliding_merge import WindowMerges


class ClosedPanes:
    """Panes that do not change any more, with what the next windows need of them.

    What is counted of them is linear: it is added when a pane comes and taken off when it goes, so
    that a slide does not look at every pane.

    Old panes may be folded into cells of several, one rung after the other. A cell has
    the number of its first pane; each rung has merges of its own.
    """

    def __init__(
        self,
        plan: SynopsisPlan,
        *,
        grouped: bool,
        cells: tuple[int, ...],
        grains: tuple[int, ...] = (1,),
        bounds: Sequence[int] | None = None,
        own_span_min: int = SPAN_MIN,
    ) -> None:
        """Make it empty.

        Args:
          plan: of the panes.
          grouped: whether they have groups.
          cells: how many cells of each rung a window has, about.
          grains: how many panes a cell of each rung has; the first is 1.
          bounds: the last ones that the panes which are going to be added were folded at.
          own_span_min: panes of fewer groups have rows for all of them.
        """
        self._plan = plan
        self._groups_least = 0 if grouped else 1
        self._grains = grains
        self._own_span_min = own_span_min
        self._rungs = [WindowMerges(self._empty, _merge_bytes_of, some) for some in cells]
        self.bounds = None if bounds is None else tuple(bounds)
        self._bytes: dict[int, NDArray[np.int64]] = {}
        self._sum = self._nothing()
        self._heaviest: NDArray[np.int64] | None = None
        self._homes = np.zeros(1, np.int32)  # In how many panes each group has tuples.

    def _empty(self) -> Pane:
        return Pane(self._plan, self._groups_least, of_any_size=True)

    def _nothing(self) -> NDArray[np.int64]:
        return np.zeros(len(self._plan.parts), np.int64)

    @property
    def numbers(self) -> list[int]:
        """The panes' numbers, ascending."""
        return sorted(self._bytes)

    def had_few_of(self, groups: int) -> bool:
        """Return whether the newest pane has few of so many groups: so may those that come."""
        newest = self._rungs[0].newest
        if newest is None:
            return False
        return are_few(newest.rows, groups, span_min=self._own_span_min)

    def numbers_in(self, first: int, stop: int) -> list[int]:
        """The panes first <= number < stop that are not folded, ascending."""
        return self._rungs[0].numbers_in(first, stop)

    def add(self, number: int, pane: Pane) -> None:
        """Take a pane in; it is not changed from now on."""
        self._put(number, pane, self._rung(number))

    def _put(self, number: int, pane: Pane, rung: int) -> None:
        assert number not in self._bytes
        assert number % self._grains[rung] == 0
        pane.grow(self._groups_least)  # A pane that was read thinned may have no group yet.
        pane.end(own_span_min=self._own_span_min)
        self._bytes[number] = _bytes_of(pane)
        self._sum += self._bytes[number]
        self._heaviest = None
        self._count(pane, 1)
        self._rungs[rung].add(number // self._grains[rung], pane)

    def _rung(self, number: int) -> int:
        """On which rung a pane stands, as of the last fold."""
        return sum(number < bound for bound in self.bounds or ())

    def cell_of(self, number: int) -> int:
        """The number under which a pane stands, by itself or among others, as of the last fold."""
        return number // self._grains[self._rung(number)] * self._grains[self._rung(number)]

    def replace(self, number: int, old: Pane, pane: Pane) -> None:
        """Put another version of a pane, of the same tuples, in its place."""
        pane.grow(self._groups_least)
        pane.end(own_span_min=self._own_span_min)
        self._count(old, -1)
        self._count(pane, 1)
        self._sum -= self._bytes[number]
        self._bytes[number] = _bytes_of(pane)
        self._sum += self._bytes[number]
        self._heaviest = None
        rung = self._rung(number)
        self._rungs[rung].add(number // self._grains[rung], pane)

    def drop_before(self, number: int) -> list[int]:
        """Forget the panes before this one; returns which these were."""
        return [old for rung in range(len(self._grains)) for old in self._drop(rung, number)]

    def _drop(self, rung: int, before: int) -> dict[int, Pane]:
        """Forget a rung's cells that begin before this pane; returns them."""
        grain = self._grains[rung]
        dead = self._rungs[rung].drop_before(-(-before // grain))
        for cell, pane in dead.items():
            self._count(pane, -1)
            self._sum -= self._bytes.pop(cell * grain)
            self._heaviest = None
        return {cell * grain: pane for cell, pane in dead.items()}

    def fold(self, bounds: Sequence[int]) -> tuple[dict[int, Pane], list[int]]:
        """Merge the panes before these bounds into the cells of each further rung.

        Args:
          bounds: a pane for each rung but the first, descending, none before the last fold's; each
            a multiple of its rung's grain. All panes before them have been added.

        Returns:
          The cells that are new, by their first pane, and the panes that are in them.
        """
        new: dict[int, Pane] = {}
        old: list[int] = []
        before, self.bounds = self.bounds, tuple(bounds)
        for rung, bound in enumerate(bounds, 1):
            if before is None or before[rung - 1] < bound:
                cells, members = self._fold_into(rung, bound)
                new |= cells
                old += members
        stays = {number: pane for number, pane in new.items() if number in self._bytes}
        return stays, [number for number in old if number not in self._bytes]

    def _fold_into(self, rung: int, bound: int) -> tuple[dict[int, Pane], list[int]]:
        """The cells of a rung that were merged, and all panes that were on the rung below."""
        grain, unit = self._grains[rung], self._grains[rung - 1]
        lower = self._rungs[rung - 1]
        cells: dict[int, Pane] = {}
        numbers = [leaf * unit for leaf in lower.numbers_in(None, bound // unit)]
        for cell, members in groupby(numbers, lambda number: number // grain * grain):
            if list(members) != [cell]:  # A single one moves up as it is.
                whole = lower.stretch(cell // unit, (cell + grain) // unit)
                assert whole is not None
                cells[cell] = self._empty().merge(whole)
        dropped = self._drop(rung - 1, bound)
        alone = {n: pane for n, pane in dropped.items() if n // grain * grain not in cells}
        for number, pane in {**alone, **cells}.items():
            self._put(number, pane, rung)
        return cells, list(dropped)

    def _count(self, pane: Pane, sign: int) -> None:
        there = pane.groups_here
        if there.size:
            self._homes = grown(self._homes, int(there[-1]) + 1)
            self._homes[there] += sign

    def alive(self, groups: int) -> NDArray[np.bool_]:
        """Return which of the groups 0 to groups - 1 have tuples in any of the panes."""
        self._homes = grown(self._homes, groups)
        alive: NDArray[np.bool_] = self._homes[:groups] > 0
        return alive

    def merged(self, numbers: range) -> Pane:
        """These panes as one, to be read only: it may be a pane, or be used again.

        Args:
          numbers: they begin and end where cells do.
        """
        parts = []
        ends = [*(self.bounds or ()), None]
        stop = numbers.stop
        for grain, rung, bound in zip(self._grains, self._rungs, ends, strict=False):
            start = numbers.start if bound is None else max(numbers.start, bound)
            if start < stop:
                part = rung.merged(start // grain, stop // grain)
                parts += [] if part is None else [part]
                stop = start
        if len(parts) == 1:
            return parts[0]
        whole = self._empty()
        for part in reversed(parts):
            whole.merge(part)
        return whole

    def stretch(self, numbers: range) -> Pane:
        """Panes that no cell holds as one, to be read only; they need not be those of a window."""
        whole = self._rungs[0].stretch(numbers.start, numbers.stop)
        return self._empty() if whole is None else whole

    @property
    def pane_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in the panes; shape [parts]."""
        return self._sum.copy()

    @property
    def merge_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in the merges of them; shape [parts]."""
        total: NDArray[np.int64] = np.sum([rung.size for rung in self._rungs], axis=0)
        return total

    @property
    def home_bytes(self) -> int:
        """What it takes to know which groups are alive."""
        return self._homes.nbytes

    @property
    def merges_full(self) -> bool:
        """Return whether merges found no room, so that each window is merged from many panes."""
        return any(rung.is_full for rung in self._rungs)

    def limit_merges(self, room: NDArray[np.int64]) -> None:
        """Keep merges only as far as each part of the plan has room for them; shape [parts]."""
        for rung in self._rungs:
            rung.limit(room // len(self._rungs))

    @property
    def heaviest_bytes(self) -> NDArray[np.int64]:
        """What each part of the plan holds in its heaviest cell of each rung; [rungs, parts]."""
        if self._heaviest is None:
            rungs: list[list[NDArray[np.int64]]] = [[self._nothing()] for _ in self._grains]
            for number, size in self._bytes.items():
                rungs[self._rung(number)].append(size)
            self._heaviest = np.array([np.max(sizes, axis=0) for sizes in rungs])
        return self._heaviest


def _bytes_of(pane: Pane) -> NDArray[np.int64]:
    return np.array(pane.part_bytes, np.int64)


def _merge_bytes_of(pane: Pane) -> NDArray[np.int64]:
    return np.array(pane.merge_bytes, np.int64)
