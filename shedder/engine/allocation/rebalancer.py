"""Rebalancer: reallocates the synopsis budget among standing queries when their load drifts."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import structlog

from allocator.allocate import Allocation
from allocator.demands import Budget
from allocator.errors import AllocatorError
from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.grant_report import facts_of, grant_keys
from shedder.engine.allocation.group_sizing import solved_with_sizes
from shedder.engine.allocation.negotiation import Grant, negotiate
from shedder.engine.allocation.problem import Problem, problem
from shedder.engine.allocation.solver import Solution, solved
from shedder.engine.apply.size_records import submit_sizes
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.allocation_request import (
    AllocationRequest,
    SynopsisSizes,
    steadied,
)
from shedder.engine.synopsis_plans.synopsis_plan import with_sizes
from shedder.errors import BudgetExceeded, ShedderError

_PACE_SECONDS = 1.0  # A pace is measured over no less.
_LOOK_SECONDS = 0.001  # Queries are looked at for so long before others may have the apply thread.
_HEADROOM = 2  # Groups may come to need so many times what they will need by now.
_RARE = 4  # Groups that found no room take so many times the bytes of others, by tuple,
_FROZEN = 4  # ... but no more than so many times what the others take.
_DRIFT_STEPS = 4  # Per factor of two: a quarter of it is a drift, less is noise.

_BY_TIME = ("missed", "limited_by", "not_planned")  # Facts that are told only where they are so.

_log = structlog.get_logger("shedder.allocation")


@dataclass(frozen=True, slots=True)
class _Pace:
    """How fast a stream is, as of its last look: tuples per second of time, and of event time."""

    position: int
    at_s: float
    watermark_us: int | None
    per_s: float = 0.0
    per_event_s: float = 0.0

    def then(self, position: int, at_s: float, watermark_us: int | None) -> _Pace:
        """The pace some time later."""
        tuples, elapsed_s = position - self.position, at_s - self.at_s
        if elapsed_s < _PACE_SECONDS:
            return self
        before, now = self.watermark_us, watermark_us
        event_s = (now - before) / 1e6 if before is not None and now is not None else 0.0
        per_event_s = tuples / event_s if event_s > 0 else self.per_event_s
        return _Pace(position, at_s, watermark_us, tuples / elapsed_s, per_event_s)


class Rebalancer:
    """Allocates the budget of synopses. Its methods are called one at a time: by the thread that
    changes queries, which holds the lock, or by the rebalancer's own worker.

    budget_bytes: bytes of all synopses.
    last: newest solution; None: none was needed yet.
    over: bytes by which tenants exceed their quotas with the smallest synopses, by tenant.
    priced: demands that were built for CPU prices at the last EXPLAIN ALLOCATION.
    """

    def __init__(self, core: EngineState, lock: threading.RLock) -> None:
        self._core = core
        self._lock = lock
        self.last: Allocation | None = None
        self.over: dict[str, int] = {}
        self._paces: dict[int, _Pace] = {}  # By a stream's id: its name may come again.
        self._given: dict[
            str, tuple[object, SynopsisSizes]
        ] = {}  # Logged, perhaps not in force yet.
        self._giving = threading.Lock()
        self._seen: tuple[object, ...] | None = None
        self._last_requests: dict[str, AllocationRequest] = {}
        self._drawings = DemandCache()
        self.priced = DemandCache()
        self._looking = threading.Lock()
        self._worker = core.machine.pool("shedder-allocation")

    # --- present allocation --------------------------------------------------------------------

    def requests(self) -> list[AllocationRequest]:
        """All standing queries, as of now and of what has been logged for them.

        Statistics that have hardly changed since the last look are those of that look.
        """
        found: list[AllocationRequest] = []
        with self._looking:
            streams = list(self._core.streams.values())
            live = {stream.id for stream in streams}
            self._paces = {key: pace for key, pace in self._paces.items() if key in live}
            for stream in streams:
                names = deque(stream.queries)
                while names:
                    found += self._core.look(partial(self._look, stream, names))
            found = [steadied(one, self._last_requests.get(one.name)) for one in found]
            self._last_requests = {one.name: one for one in found}
        return found

    def _look(self, stream: Stream, names: deque[str]) -> list[AllocationRequest]:
        """On the apply thread: for a moment, at the first of these, which are taken from them."""
        machine = self._core.machine
        now_s = machine.monotonic_s()
        new = _Pace(stream.position, now_s, stream.watermark_us)
        before = self._paces.get(stream.id, new)
        pace = self._paces[stream.id] = before.then(stream.position, now_s, stream.watermark_us)
        found: list[AllocationRequest] = []
        while names and machine.monotonic_s() < now_s + _LOOK_SECONDS:
            standing_query = stream.queries.get(names.popleft())
            if standing_query is not None and not standing_query.failed:
                found.append(self._request(standing_query, pace))
        return found

    def _request(self, standing_query: StandingQuery, pace: _Pace) -> AllocationRequest:
        query_state = standing_query.state
        query, plan, cap = query_state.query, query_state.plan, query_state.sizes.part_bytes_max
        range_us = query_state.grid.range_us
        groups = 1 if query_state.keys is None else max(query_state.keys.size, 1)
        tuples = pace.per_event_s * range_us / 1e6 if range_us else float(pace.position)
        tuples *= query_state.passing_share / groups
        coarsest = query_state.resizer.coarsest()
        standing_query.measured.correct(query, plan, coarsest, tuples)
        standing_query.measured.want()
        held = needed = 0
        foreseen: tuple[int, ...] = ()
        if query_state.keys is not None:
            foreseen = query_state.memory.foreseen
            held = needed = max(foreseen)
            roomless = min(query_state.panes.others_share, 1 - 1e-9)
            needed = round(held * min(_FROZEN, 1 + _RARE * roomless / (1 - roomless)))
        logged = self._given.get(query_state.name)
        if logged is not None:
            whose, given = logged
            is_in_force = given == SynopsisSizes(
                tuple(part.size for part in plan.parts), _cap(query, cap)
            )
            if whose is not query_state or is_in_force:  # Else of another query that had this name.
                self._forget(query_state.name, logged)
            if whose is query_state:
                plan, cap = with_sizes(plan, given.sizes), given.group_bytes
        return AllocationRequest(
            name=query_state.name,
            query=query,
            plan=plan,
            levels=query_state.levels,
            weight=standing_query.weight,
            active=standing_query.active,
            group_bytes=_cap(query, cap),
            held_bytes=min(held, cap),
            needed_bytes=needed,
            grown_bytes=max(needed, _HEADROOM * held),
            foreseen=foreseen,
            halved=query_state.resizer.halved(),
            tuples_per_s=pace.per_s,
            tuples=tuples,
            factors=tuple(standing_query.measured.factors),
            skipping=tuple(standing_query.measured.skipping),
            coarsest=coarsest,
            limits=standing_query.limits,
            measured=tuple(standing_query.measured.errors),
        )

    def problem(self, requests: Sequence[AllocationRequest]) -> Problem:
        """The present problem of these queries."""
        return problem(
            requests,
            group_bytes_max=self._core.settings.group_bytes_max,
            drawings=self._drawings,
        )

    def budget(self, found: Problem) -> Budget:
        """What is left for options when everything beside them has its place."""
        return Budget(max(0, self._core.synopsis_bytes - int(found.beside_bytes.sum())))

    # --- what becomes of it --------------------------------------------------------------------

    def negotiated(
        self,
        query: BoundQuery,
        levels: Sequence[int] | None = None,
        limits: SynopsisSizes | None = None,
    ) -> Grant:
        """Return what a new query would be granted; no query changes.

        Args:
          query: query to be registered. levels, limits: as in `negotiate`.

        Raises:
          PrecisionUnavailable, BudgetExceeded: the query cannot be granted.
        """
        return negotiate(
            query,
            self._core.synopsis_bytes,
            self.requests(),
            group_bytes_max=self._core.settings.group_bytes_max,
            last=self.last,
            levels=levels,
            limits=limits,
            quotas=self._core.tenants.synopsis_bytes,
            drawings=self._drawings,
        )

    def make_room(self, granted: Grant) -> None:
        """The others become what they have to, so that a query can be granted what it was."""
        self._apply(self.requests(), granted.others)

    def settle(self, changed: Sequence[str] | None = None, *, must_fit: str | None = None) -> bool:
        """Allocate the budget for the present state; return whether any query changed.

        Args:
          changed: queries that choose anew while the others stay, as long as that keeps all
            targets; None: all queries choose.
          must_fit: tenant whose quota has to hold; else no query changes.

        Raises:
          BudgetExceeded: not even the smallest synopses fit; no query has changed.
        """
        requests = self.requests()
        self._seen = self._traits(requests)
        self.over = {}
        if not requests:
            self.last = None
            return False
        try:
            if changed is None:
                found, solution = solved_with_sizes(
                    requests,
                    lambda queries: self._solved(queries, None),
                    group_bytes_max=self._core.settings.group_bytes_max,
                )
                self.last = solution.allocation
            else:
                found, solution = self._solved(requests, changed)
                if solution.provisional:
                    self._seen = None
        except AllocatorError as error:
            beside = int(self.problem(requests).beside_bytes.sum())
            raise BudgetExceeded(
                f"the standing queries do not fit {self._core.synopsis_bytes:,} bytes, of which "
                f"their panes as such take {beside:,}; of the rest, {error}"
            ) from error
        self.over = {tenant: -left for tenant, left in solution.held.items() if left < 0}
        if must_fit in self.over:
            raise BudgetExceeded(
                f"the standing queries of tenant {must_fit!r} take {self.over[must_fit]:,} "
                "bytes more than that at least; drop some first"
            )
        choice = solution.allocation.choice
        may_differ = range(len(requests)) if changed is None else found.moved(choice)
        given = {requests[at]: after for at, after in found.given_to(may_differ, choice).items()}
        others = {
            one.name: after
            for one, after in given.items()
            if after != SynopsisSizes(one.sizes, one.group_bytes)
        }
        self._apply(requests, others)
        self._tell(found, solution)
        return bool(others)

    def _solved(
        self, requests: Sequence[AllocationRequest], changed: Sequence[str] | None
    ) -> tuple[Problem, Solution]:
        """The problem of these queries, and its solution; `changed` as in `settle`."""
        found = self.problem(requests)
        rows = None
        if changed is not None:
            rows = found.rows_of([at for at, one in enumerate(requests) if one.name in changed])
        quotas = self._core.tenants.synopsis_bytes
        return found, solved(found, self.budget(found), rows, self.last, quotas)

    def tick(self) -> None:
        """Reallocate on the worker if anything has drifted; skip this tick if the lock is taken."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._traits(self.requests()) != self._seen:
                self.settle()
        except ShedderError as error:
            _log.warning("not_shared_out", error=str(error))
        finally:
            self._lock.release()

    def _traits(self, requests: Sequence[AllocationRequest]) -> tuple[object, ...]:
        """What a solution rests on: the queries, and what there is to share out."""
        core = self._core
        return *_traits(requests), core.synopsis_bytes, *sorted(core.tenants.synopsis_bytes.items())

    def soon(self) -> None:
        """Have the worker look; from any thread."""
        try:
            self._worker.submit(self.tick).add_done_callback(_log_failure)
        except RuntimeError:  # Closed meanwhile.
            return

    def close(self) -> None:
        """Return when the worker has ended."""
        self._worker.shutdown(cancel_futures=True)

    def _apply(
        self, requests: Sequence[AllocationRequest], given: Mapping[str, SynopsisSizes]
    ) -> None:
        """Log what changes: first those that become smaller."""
        before = {one.name: sum(one.sizes) + one.group_bytes for one in requests}
        order = sorted(given, key=lambda name: _total(given[name]) - before[name])
        for name in order:
            stream, standing_query = self._core.standing_query(name)
            has = given[name]
            logged = standing_query.state, has
            with self._giving:
                self._given[name] = logged
            written = submit_sizes(self._core, stream, name, has.sizes, has.group_bytes)
            written.add_done_callback(partial(self._written, name, logged))

    def _written(
        self, name: str, logged: tuple[object, SynopsisSizes], future: Future[int]
    ) -> None:
        """What could not be logged is not in force, and never will be."""
        if future.exception() is not None:
            self._forget(name, logged)

    def _forget(self, name: str, logged: tuple[object, SynopsisSizes]) -> None:
        """From any thread: unless the query was given something else meanwhile."""
        with self._giving:
            if self._given.get(name) is logged:
                del self._given[name]

    def _tell(self, found: Problem, solution: Solution) -> None:
        """What is granted is what was granted last, to whom it is something else.

        Prices are told with other bytes.
        """
        keys = grant_keys(found, solution.allocation)
        queries = [self._core.standing_query(one.name)[1] for one in found.requests]
        new = [
            at for at, standing_query in enumerate(queries) if standing_query.grant_key != keys[at]
        ]
        moved = [at for at in new if queries[at].granted.get("bytes") != str(keys[at][0])]
        stays = sorted({*new} - {*moved})
        cap = self._core.settings.group_bytes_max
        facts = facts_of(found, solution, moved, cap)
        facts += facts_of(found, solution, stays, cap, priced=False)
        for at, facts_now in zip([*moved, *stays], facts, strict=True):
            before = queries[at].granted
            kept = {k: v for k, v in before.items() if k not in _BY_TIME}
            queries[at].grant(kept | facts_now, keys[at])


def _cap(query: BoundQuery, cap: int) -> int:
    return cap if query.groups else 0


def _total(given: SynopsisSizes) -> int:
    return sum(given.sizes) + given.group_bytes


def _traits(requests: Sequence[AllocationRequest]) -> tuple[object, ...]:
    """What a solution rests on of the queries, so coarse that noise does not show."""
    return tuple(
        (
            one.name,
            one.weight,
            one.active,
            one.sizes,
            one.group_bytes,
            one.levels,
            *map(_step, (one.needed_bytes, one.tuples, *one.factors, *one.skipping)),
        )
        for one in requests
    )


def _step(value: float) -> int:
    return round(_DRIFT_STEPS * math.log2(value)) if value > 0 else -(1 << 16)


def _log_failure(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("not_shared_out", error=repr(error))
