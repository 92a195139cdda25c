"""Shedding units: the synopses of all standing queries that load may thin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shedder.cql.statements.overload_policy import Policy
from shedder.cql.statements.statement import Contract, TargetKind
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.allocation.query_weights import weights_by_query
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.engine.synopsis_plans.synopsis_plan import RANKED, SynopsisKind
from shedder.engine.window_state.query_state import QueryState
from shedder.overload.controller import WAITS_S
from shedder.overload.load_meter import ROWS_MAX
from shedder.overload.measured_costs import Factors
from shedder.overload.shedding_steps import FREE, Unit

LEVELS = 11  # 1 to 1/1024; beyond, nothing is saved any more.
ERROR = 0.01  # What a relative error is measured by where a query has no target.
_STREAM_S = 60.0  # Of windows without an end: so much of the stream is in a value, at least.

# The error of one tuple that stands for all, in values: sums of what spreads err more than counts,
# and one value in two is another one. Of quantiles and lists, see _spread_of.
_SPREAD = {
    SynopsisKind.COUNT: 1.0,
    SynopsisKind.MOMENTS: 3.0,
    SynopsisKind.CROSS: 3.0,
    SynopsisKind.COUNTERS: 3.0,
    SynopsisKind.DISTINCT: 2.0,
    SynopsisKind.THETA: 2.0,
}
_SIGMA = 1.5  # Of values whose logarithms are normal: sums of them have the spread above.
_LISTED = 10.0  # Times its length: a list's values are so small a share of the tuples.
_TOGETHER = (
    SynopsisKind.COUNT,
    SynopsisKind.MOMENTS,
)  # With GROUP BY: cheap, once the groups are found.
assert LEVELS <= LEVEL_MAX + 1

Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class SheddingUnit:
    """Synopses that are thinned together, and what the model says that they cost.

    Of one group each synopsis is on its own. With GROUP BY counts and sums of a query go together:
    most of what they take is the search for the groups of the rows that are kept.
    thins: load may have it read less; else its stream has another policy.
    """

    key: Key
    state: QueryState
    forced: int
    model_ns: NDArray[np.float64]
    thins: bool = True

    @property
    def level(self) -> int:
        """The present one; that of the rows, if they are among others, may be a smaller one."""
        return self.state.levels[self.key[1][-1]]

    @property
    def is_thinned(self) -> bool:
        """Return whether load has it read less."""
        return bool(self.level) and self.forced == FREE


def modelled(query_state: QueryState, *, thins: bool = True) -> list[SheddingUnit]:
    """The units of one standing query; rows of one group are counted in any case.

    One that takes another one's panes has none: its levels are those of its provider.
    """
    if query_state.feed is not None:
        return []
    grouped = query_state.keys is not None
    parts = range(0 if grouped else 1, len(query_state.plan.parts))
    free = tuple(part for part in parts if part not in query_state.forced)
    cheap = tuple(part for part in free if query_state.plan.parts[part].kind in _TOGETHER)
    apart = [(part,) for part in free if not grouped or part not in cheap]
    together = [cheap, *apart] if grouped and cheap else apart
    fixed = [(part,) for part in parts if part in query_state.forced]
    return [
        SheddingUnit(
            (query_state.name, those),
            query_state,
            query_state.levels[those[0]] if those[0] in query_state.forced else FREE,
            np.sum(
                [
                    costs_ns(query_state.plan.parts[part], grouped=grouped, alone=False)[:LEVELS]
                    for part in those
                ],
                axis=0,
            ),
            thins,
        )
        for those in (*together, *fixed)
        if query_state.levels[those[0]] < LEVELS
    ]


@dataclass(frozen=True, slots=True)
class _WatchedUnit:
    """What a unit's CPU timer said at a look. level: the unit's, then."""

    tuples: int = 0
    runs: int = 0
    ns: int = 0
    level: int = 0


@dataclass(slots=True, eq=False)
class Costs:
    """What units of synopses really cost, learnt from the CPU timers of their queries.

    factors: by unit. Used by the controller's edge alone, while the CPU timers run: what is read
    in the middle of a batch is made up for at the next look.
    """

    factors: dict[Key, Factors] = field(default_factory=dict)
    _runs: dict[Key, float] = field(default_factory=dict)  # Per tuple, when it is thinned.
    _seen: dict[Key, _WatchedUnit] = field(default_factory=dict)

    def learn(self, units: Iterable[SheddingUnit], rates: Mapping[str, float]) -> None:
        """Read the CPU timers; of a new unit, read all since its start.

        rates: tuples/s by stream, refused tuples included. Under load shedding, the tuples that
        wait for admission are read as one run. Costs at the present short runs would show that
        skipping does not pay, and reading everything keeps runs short. Costs at the admitted rate
        would show that no more can be applied, which keeps runs short, too.
        """
        seen = {}
        for unit in units:
            cpu_timer = unit.state.cpu_timer
            ns = sum(cpu_timer.ns[part] for part in unit.key[1])
            now = _WatchedUnit(cpu_timer.tuples, cpu_timer.runs, ns, unit.level)
            before = self._seen.get(unit.key, _WatchedUnit(level=unit.level))
            tuples = now.tuples - before.tuples
            if before.level == unit.level and tuples == 0:
                seen[unit.key] = before
                continue
            seen[unit.key] = now
            if tuples == 0:
                continue
            runs = (now.runs - before.runs) / tuples
            waits = rates.get(unit.state.query.schema.name, 0.0) * WAITS_S
            self._runs[unit.key] = min(runs, 1.0 / max(min(waits, ROWS_MAX), 1.0))
            if before.level == unit.level:
                self.factors[unit.key] = self.factors.get(unit.key, Factors()).learn(
                    level=unit.level,
                    measured_ns=(now.ns - before.ns) / tuples,
                    modelled_ns=float(unit.model_ns[unit.level]),
                    calls_ns=_calls_ns(unit, runs),
                )
        self._seen = seen
        self._runs = {key: runs for key, runs in self._runs.items() if key in seen}
        self.factors = {key: known for key, known in self.factors.items() if key in seen}

    def corrected(self, unit: SheddingUnit) -> NDArray[np.float64]:
        """The cost of each level, here."""
        known = self.factors.get(unit.key, Factors())
        return known.corrected(unit.model_ns, _calls_ns(unit, self._runs.get(unit.key, 0.0)))


def _calls_ns(unit: SheddingUnit, runs: float) -> float:
    """What calls take of a tuple by the model; runs: per tuple."""
    return len(unit.key[1]) * unit.state.cpu_timer.call_ns * runs


def units_of(
    streams: Iterable[Stream], costs: Costs, rates: Mapping[str, float], *, offered: float = 1.0
) -> tuple[list[SheddingUnit], list[Unit]]:
    """All units, as the ladder wants them; what they cost is learnt before.

    Args:
      streams: live ones. costs: what they cost. rates: tuples/s by stream.
      offered: so many times as much would come if the door let it in.
    """
    total = sum(rates.values())
    live = list(streams)
    weights = weights_by_query(live)
    queries = [
        standing_query for stream in live for standing_query in list(stream.queries.values())
    ]
    active = {standing_query.state.name for standing_query in queries if standing_query.active}
    known = [
        (unit, rates.get(stream.schema.name, 0.0))
        for stream in live
        for standing_query in list(stream.queries.values())
        if not standing_query.failed
        for unit in modelled(
            standing_query.state, thins=stream.schema.on_overload.policy is Policy.THIN
        )
    ]
    costs.learn([unit for unit, _ in known], {name: offered * r for name, r in rates.items()})
    units = [
        Unit(
            query=unit.key[0],
            parts=unit.key[1],
            weight=_weight(unit.state, weights, rate),
            cost_ns=costs.corrected(unit),
            tuples=_tuples_per_value(unit.state, rate),
            spread=_spread(unit),
            forced=unit.forced if unit.thins else max(unit.forced, 0),
            share=rate / total if total > 0 else 1.0,
            promised=_promised(unit.state, active, rate),
        )
        for unit, rate in known
    ]
    return [unit for unit, _ in known], units


def _weight(query_state: QueryState, weights: Mapping[str, float], rate: float) -> float:
    """What a relative error of a query's answers counts; of those it reads for, with theirs.

    What it skips is missing in their panes, too. With other windows they err by another multiple of
    what it does.
    """
    own = _tuples_per_value(query_state, rate)
    total = 0.0
    for each in (query_state, *query_state.consumers):
        if each.name in weights:
            times = np.sqrt(own / _tuples_per_value(each, rate))
            total += weights[each.name] / _wanted_error(each) * times
    return float(total)


def _promised(query_state: QueryState, active: Collection[str], rate: float) -> float:
    """The largest standard error of its answers that keeps what was promised, to those, too, that
    it reads for; inf: nothing was.
    """
    own, least = _tuples_per_value(query_state, rate), np.inf
    for each in (query_state, *query_state.consumers):
        query, target = each.query, each.query.target
        if each.name not in active or query.contract is not Contract.FAIL or target is None:
            continue
        if target.kind is not TargetKind.ABSOLUTE:
            times = np.sqrt(own / _tuples_per_value(each, rate))
            least = min(least, target.size / float(ndtri((1 + query.confidence) / 2)) / times)
    return least


def _wanted_error(query_state: QueryState) -> float:
    target = query_state.query.target
    if target is None or target.kind is not TargetKind.RELATIVE or target.size <= 0:
        return ERROR
    return target.size


def _tuples_per_value(query_state: QueryState, rate: float) -> float:
    range_us = query_state.grid.range_us
    seconds = _STREAM_S if range_us is None else range_us / 1e6
    groups = 1 if query_state.keys is None else max(query_state.keys.size, 1)
    return max(rate * seconds * query_state.passing_share / groups, 1.0)


def _spread(unit: SheddingUnit) -> float:
    return sum(_spread_of(unit.state, part) for part in unit.key[1])


def _spread_of(query_state: QueryState, part: int) -> float:
    """Of one synopsis, as far as it can be known without looking at the data."""
    plan, kind = query_state.plan, query_state.plan.parts[part].kind
    entries = zip(query_state.query.aggregates, plan.answers, plan.partners, strict=True)
    of = [a.parameter for a, *parts in entries if part in parts and a.parameter is not None]
    if kind is SynopsisKind.FREQUENT:
        return float(np.sqrt(_LISTED * max(of, default=1.0)))
    if kind is SynopsisKind.BUCKETS:
        return max((_spread_at(q) for q in of), default=1.0)
    if kind in RANKED:
        return 0.5
    return _SPREAD.get(kind, 1.0)


def _spread_at(q: float) -> float:
    """Of the q-quantile of lognormal values: sqrt(q (1 - q)) over the density, by the value."""
    z = ndtri(min(max(q, 1e-3), 1 - 1e-3))
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return float(_SIGMA * np.sqrt(q * (1 - q)) / density)
