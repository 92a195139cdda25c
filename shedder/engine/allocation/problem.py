"""Allocation problem of all standing queries: their requests as the allocator's demands.

Every division of memory or CPU uses this module. Input: the registered queries, their grants and
what was measured of them. Output: options, readers, and the sizes and levels of each option.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.curves import bound_by_panes
from allocator.demands import Demands, Integers, Options, Readers
from shedder.cql.expressions.expression import Aggregate
from shedder.cql.statements.statement import Contract
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.query_demands import QueryDemands, Row
from shedder.engine.allocation.query_weights import present_weights
from shedder.engine.synopsis_plans.allocation_request import AllocationRequest, SynopsisSizes

_Number = TypeVar("_Number", np.int64, np.float64)
_MOVING = 0.02  # Of what a synopsis loses now: a change has to be worth so much.


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Demands, and what they are about.

    rows: of the demands. readers: (query, aggregate) of each reader; no aggregate: all groups.
    beside_bytes: int64 [queries]; what each takes whatever it is given, not part of any option.
    group_bytes_max: the largest cap on the groups of one synopsis.
    """

    requests: Sequence[AllocationRequest]
    rows: Sequence[Row]
    readers: Sequence[tuple[int, Aggregate | None]]
    demands: Demands
    beside_bytes: NDArray[np.int64]
    group_bytes_max: int

    @property
    def present_bytes(self) -> int:
        """Bytes of the standing queries at their present sizes."""
        options, present = self.demands.options, self.demands.present
        standing = np.flatnonzero(present >= 0)
        of_rows = int(options.size_bytes[standing, present[standing]].sum())
        stands = np.array([request.stands for request in self.requests], bool)
        return of_rows + int(self.beside_bytes[stands].sum())

    def present_bytes_of(self, tenant: str) -> int:
        """What a tenant's queries take that stand, as they are."""
        options, present = self.demands.options, self.demands.present
        mine = np.array([one.query.schema.tenant == tenant for one in self.requests], bool)
        stands = np.array([request.stands for request in self.requests], bool)
        owner = np.array([row.request for row in self.rows], np.int64)
        standing = np.flatnonzero((present >= 0) & mine[owner])
        of_rows = int(options.size_bytes[standing, present[standing]].sum())
        return of_rows + int(self.beside_bytes[stands & mine].sum())

    def given(self, choice: Integers) -> list[SynopsisSizes]:
        """Return what every query gets by a choice of options, in order of `requests`."""
        return list(self.given_to(range(len(self.requests)), choice).values())

    def given_to(self, numbers: Collection[int], choice: Integers) -> dict[int, SynopsisSizes]:
        """What the queries of these numbers get by a choice of options."""
        sizes = {number: list(self.requests[number].sizes) for number in numbers}
        caps = {number: self.requests[number].group_bytes for number in numbers}
        for row, option in zip(self.rows, choice.tolist(), strict=True):
            if row.request not in sizes:
                continue
            if not row.parts:
                caps[row.request] += row.size(option) - self.requests[row.request].group_bytes
            elif row.curve is not None:
                caps[row.request] += row.more(option)
                for part in row.parts:
                    sizes[row.request][part] = row.size(option)
        return {
            number: SynopsisSizes(
                tuple(of),
                min(caps[number], max(self.group_bytes_max, self.requests[number].group_bytes)),
            )
            for number, of in sizes.items()
        }

    def moved(self, choice: Integers) -> set[int]:
        """The numbers of the queries that have other options by a choice than they have now."""
        at = np.flatnonzero(choice != self.demands.present)
        return {self.rows[row].request for row in at.tolist()}

    def levels(self, choice: Integers) -> list[tuple[int, ...]]:
        """Return the level of each part by a choice, in order of `requests`.

        Rows (part 0) are counted at the smallest level of all parts, because they name the groups.
        """
        found = [list(request.levels) for request in self.requests]
        for row, option in zip(self.rows, choice.tolist(), strict=True):
            for part in row.parts:
                found[row.request][part] = row.level(option)
        return [(min(levels), *levels[1:]) for levels in found]

    def expected_now(self, row: Row, error: float, scale: float = 1.0) -> float:
        """The half width that windows are expected to have, as measurements correct predictions.

        A window errs as its coarsest pane does, until that pane has left.

        error: of new panes. scale: of a reader of that row.
        """
        coarsest = self.requests[row.request].coarsest
        if row.curve is None or not coarsest:
            return error
        of_panes = scale * row.curve.error(coarsest[row.parts[0]])
        return float(bound_by_panes(np.float64(error), of_panes))

    def predicted_now(self, row: Row, error: float, scale: float = 1.0) -> float:
        """The half width of windows at the query's confidence, whatever was measured of its size.

        error: predicted of new panes, as `predicted` returns it. scale: of a reader of that row.
        """
        coarsest = self.requests[row.request].coarsest
        if row.curve is None or not coarsest:
            return error
        of_panes = scale * replace(row.curve, factor=1.0).error(coarsest[row.parts[0]])
        return float(bound_by_panes(np.float64(error), of_panes))

    def predicted(self, row: Row, option: int, error: float, scale: float = 1.0) -> float:
        """The half width of new panes at the query's confidence, whatever was measured of its size.

        error: of the option, as measurements correct it. scale: of a reader of that row, in error.
        """
        if row.curve is None or scale == 0.0:
            return error
        return scale * row.curve.uncorrected(row.size(option), error / scale)

    def rows_of(self, numbers: Collection[int]) -> Integers:
        """The rows of some queries, by their numbers."""
        return np.array(
            [at for at, row in enumerate(self.rows) if row.request in numbers], np.int64
        )


def problem(
    requests: Sequence[AllocationRequest],
    *,
    group_bytes_max: int,
    levels: Sequence[int] | None = None,
    drawings: DemandCache | None = None,
) -> Problem:
    """The demands of standing queries.

    Args:
      requests: each query; one that `stands` prefers to stay what it is.
      group_bytes_max: the largest cap on the groups of one synopsis.
      levels: that every synopsis may be thinned to; None: only those in force. The present level
        is always one of them.
      drawings: what was drawn the last time; only what has changed since is drawn again. The
        problem is the same without.
    """
    drawings = DemandCache() if drawings is None else drawings
    drawn = drawings.of(requests, group_bytes_max=group_bytes_max, levels=levels)
    demands = Demands.new(Options.joined([one.options for one in drawn]), _readers(requests, drawn))
    lost = demands.loss()
    present = _joined([one.present for one in drawn], np.int64)
    standing = np.flatnonzero(present >= 0)
    moving = np.zeros(len(present))
    moving[standing] = _MOVING * np.minimum(lost[standing, present[standing]], 1e6)
    return Problem(
        requests=requests,
        rows=[row for one in drawn for row in one.rows],
        readers=[(at, aggregate) for at, one in enumerate(drawn) for aggregate in one.aggregates],
        demands=replace(demands, present=present, moving=moving),
        beside_bytes=np.array([one.beside_bytes for one in drawn], np.int64),
        group_bytes_max=group_bytes_max,
    )


def _readers(requests: Sequence[AllocationRequest], drawn: Sequence[QueryDemands]) -> Readers:
    """Return a reader for each aggregate; an inactive query accepts any error."""
    many = [len(one.aggregates) for one in drawn]
    first = np.cumsum([0, *(len(one.rows) for one in drawn)])
    weights = present_weights([(one.weight, one.active) for one in requests])
    active = np.repeat(np.array([one.active for one in requests], np.bool_), many)
    omits = np.repeat(np.array([one.query.contract is Contract.OMIT for one in requests]), many)
    fails = np.repeat(np.array([one.query.contract is Contract.FAIL for one in requests]), many)
    target = np.where(active, _joined([one.target for one in drawn], np.float64), np.inf)
    asks = np.isfinite(target)
    return Readers(
        synopsis=_joined([one.synopsis for one in drawn], np.int64) + np.repeat(first[:-1], many),
        weight=np.repeat(np.array(weights, np.float64), many),
        scale=_joined([one.scale for one in drawn], np.float64),
        target=target,
        forfeit=np.where(asks, np.where(omits, 1.0, target), 0.0),
        promised=asks & fails.astype(np.bool_),
    )


def _joined(parts: Sequence[NDArray[_Number]], kind: type[_Number]) -> NDArray[_Number]:
    return np.concatenate([np.zeros(0, kind), *parts])
