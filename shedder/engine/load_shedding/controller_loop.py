"""Loop of the overload controller: every tick reads the load and applies the decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
import structlog
from numpy.typing import NDArray

from shedder.cql.statements.overload_policy import Policy
from shedder.engine.allocation.query_weights import weights_by_query
from shedder.engine.apply.load_levels import LoadLevels
from shedder.engine.engine_state import EngineState
from shedder.engine.load_shedding.shedding_units import Costs, SheddingUnit, units_of
from shedder.engine.load_shedding.spare_capacity import SpareCapacity
from shedder.engine.runtime.release_memory import give_back
from shedder.engine.synopsis_plans.thinning_levels import by_load
from shedder.overload.controller import (
    AGE_MS,
    NORMAL,
    TICK_S,
    USE,
    ControllerState,
    step,
    waiting_bytes_max,
)
from shedder.overload.cpu_admission import StreamCost
from shedder.overload.drop_share import ALL, DropShare, next_share
from shedder.overload.fair_shedding import Caps, FairSteps
from shedder.overload.load import NS, Load
from shedder.overload.memory_pressure import NONE, next_pressure
from shedder.overload.shedding_steps import FREE, Unit

LOOK_TICKS = 10  # Between two looks at what synopses cost, and two ladders.
IDLE = 0.5  # Of the time of the apply thread: below it, there is time for repairs.
BACKLOG_MS = 150.0  # AppendStream calls wait while applying the backlog takes longer than this.
BACKLOG_MS_CALM = 4 * BACKLOG_MS  # The same without overload: thinning begins before calls wait.
ALPHA = 0.3  # What a look's rate of a stream counts.

_log = structlog.get_logger("shedder.overload")


class Overload:
    """Sheds work by load. Any thread may call `tick`, one at a time.

    load, state: of the newest tick; any thread may read them.
    """

    def __init__(
        self,
        core: EngineState,
        load_levels: LoadLevels,
        spare: SpareCapacity,
        *,
        share_out: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        """Do nothing yet.

        Args:
          core: whose load it is.
          load_levels: puts levels in force.
          spare: is told what load leaves.
          share_out: divides the memory of synopses among queries; it must return at once.
          on_idle: called every second in which there is nothing to do; it must return at once.
        """
        self._core = core
        self._load_levels = load_levels
        self._spare = spare
        self._share_out = share_out
        self._on_idle = on_idle
        self._machine = core.machine.reader()
        self._costs = Costs()
        self._steps = FairSteps.of((), {}, {}, {})
        self._caps = Caps()
        self._units: list[tuple[SheddingUnit, Unit]] = []
        self._of_query: dict[str, list[int]] = {}
        self._requested_levels: NDArray[np.int64] | None = None
        self._weights: dict[str, float] = {}
        self._accepted: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._looked_s = 0.0
        self._ticks = 0
        self._turn = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self.load = Load(at_s=core.machine.monotonic_s())
        self.state: ControllerState = NORMAL
        self.share = ALL

    @property
    def on(self) -> bool:
        """Return whether it acts."""
        return self._stop is not None

    @property
    def idle(self) -> bool:
        """Return whether there is time for background work."""
        calm = not self.state.overloaded and self.load.age_ms < AGE_MS / 2
        return calm and self._busy < IDLE

    @property
    def spare(self) -> float:
        """Share of a core that background work may take: 1 without load.

        Background work gets half of a half-free core. Queries get the other half.
        """
        return max(1.0 - self._busy, 0.0) ** 2 if self.idle else 0.0

    @property
    def _busy(self) -> float:
        """The share of the apply thread's time that reading everything takes."""
        load = self.load
        return load.tuples_per_s * (load.overhead_ns_per_tuple + self._steps.ends.full_ns) / NS

    @property
    def backlog_ms_max(self) -> float:
        """Longest time that applying the backlog may take before open calls wait; ms.

        The limit is higher while nothing is shed. The signal of overload is the age of durable
        batches. Calls that were paced before the signal would wait although load could be shed.
        """
        return BACKLOG_MS if self.state.overloaded else BACKLOG_MS_CALM

    def backlog_ms(self, stream: str) -> float:
        """Predict how long applying the backlog will take, to pace calls; ms.

        0 if load sheds nothing, if admission is limited (which paces by itself), and for a stream
        whose policy is to drop and not to wait.
        """
        core = self._core
        known = core.streams.get(stream)
        if known is None or not self.on or core.door.held:
            return 0.0
        if known.schema.on_overload.policy not in (Policy.THIN, Policy.BLOCK):
            return 0.0
        one_run = core.rows_at_once / 2
        return core.meter.drain_ms(core.log_queue.in_flight_bytes, one_run=one_run)

    def start(self) -> None:
        """Act from now on, every 100 ms."""
        if self._stop is None:
            self._core.set_sheds(sheds=True)
            self._stop = self._core.machine.ticker("shedder-overload", TICK_S, self.tick)

    def stop(self) -> None:
        """Act no more; everything is read and let in again, but what the operator has forced."""
        self.close()
        self.release()
        with self._turn:  # Nothing measures the load any more.
            self.load = Load(at_s=self._core.machine.monotonic_s())
            self._note_spare()

    def release(self) -> None:
        """Read everything, but what the operator has forced: after a restart, or for good."""
        with self._turn:
            self.look(self._core.machine.monotonic_s())
            self._let_in(ALL)
            self._core.set_pressure(NONE)
            self._act(NORMAL)
            self._note_spare()

    def close(self) -> None:
        """Act no more, and leave everything as it is."""
        if self._stop is not None:
            self._stop()
            self._stop = None
            self._core.set_sheds(sheds=False)

    def tick(self) -> None:
        """One look, and what follows from it. What goes wrong is logged, and nothing is shed."""
        try:
            with self._turn:
                self._tick()
        except Exception as error:
            _log.error("overload_tick_failed", exc_info=error)
            self._core.ease()
            self._let_in(ALL)
            self._core.door.hold(float("inf"), {}, self.load.at_s, TICK_S)
            self._core.cpu_door.open()
            self._note_spare()

    def facts(self) -> dict[str, str]:
        """What the control table says, and metrics."""
        load, state, machine = self.load, self.state, self.load.machine
        facts: dict[str, object] = {
            "mode": "on" if self.on else "off",
            "overloaded": int(state.overloaded),
            "budget_ns_per_tuple": f"{state.budget_ns:.1f}",
            "full_ns_per_tuple": f"{self._steps.ends.full_ns:.1f}",
            "least_ns_per_tuple": f"{self._steps.ends.least_ns:.1f}",
            "stretch": state.period_times,
            "asks_help": int(state.asks_help),
            "admit_bytes_per_s": f"{state.admit_bytes_per_s:.0f}",
            "let_in_share": f"{self.share.let_in:.4f}",
            "dropped_per_s": f"{load.dropped_per_s:.0f}",
            "thinned_queries": len({known.key[0] for known, _ in self._units if known.is_thinned}),
            "age_ms": f"{load.age_ms:.1f}",
            "queue_bytes": load.queue_bytes,
            "queue_tuples": load.queue_tuples,
            "tuples_per_s": f"{load.tuples_per_s:.0f}",
            "bytes_per_s": f"{load.bytes_per_s:.0f}",
            "refused_bytes_per_s": f"{load.refused_bytes_per_s:.0f}",
            "answers_share": f"{load.answers_share:.3f}",
            "overhead_ns_per_tuple": f"{load.overhead_ns_per_tuple:.1f}",
            "free_share": f"{load.free_share:.3f}",
            "cpu_share": f"{machine.cpu_share:.3f}",
            "disk_bytes_per_s": f"{machine.disk_bytes_per_s:.0f}",
            "memory_bytes": machine.memory_bytes,
            "memory_limit_bytes": machine.memory_limit_bytes,
            "memory_halvings": self._core.pressure.halvings,
        }
        return {key: str(value) for key, value in facts.items()}

    def cost_ns(self, query: str) -> dict[tuple[int, ...], tuple[float, float]]:
        """By unit of a query's synopses: ns per tuple of its stream, in full and at its level."""
        return {
            known.key[1]: (float(unit.cost_ns[0]), unit.cost_at(known.level))
            for known, unit in self._units
            if known.key[0] == query
        }

    def cpu_ns_per_s(self) -> dict[str, float]:
        """By tenant, what its synopses take at their levels and the present rates."""
        found: dict[str, float] = {}
        for known, unit in self._units:
            schema = known.state.query.schema
            cost = unit.cost_at(known.level) * self._rates.get(schema.name, 0.0)
            found[schema.tenant] = found.get(schema.tenant, 0.0) + cost
        return found

    def _tick(self) -> None:
        core = self._core
        look = self._ticks % LOOK_TICKS == 0
        self._ticks += 1
        machine = self._machine.read(core.machine.monotonic_s()) if look else self.load.machine
        load = core.meter.take(machine)
        entering = load.age_ms >= AGE_MS and not self.state.overloaded
        if look or entering:
            self.look(load.at_s)
        self.load = load
        self._act(step(self.state, self.load, self._steps.ends))
        self._let_in(self._next_share())
        if look:
            self._ease_memory()
        self._note_spare()
        if look and self.idle:
            self._on_idle()

    def _note_spare(self) -> None:
        self._spare.note(idle=self.idle, share=self.spare)

    def _ease_memory(self) -> None:
        """Give memory back where it is short, in the order of overload.memory."""
        core, before = self._core, self._core.pressure
        core.set_pressure(next_pressure(before, self.load.machine, self.load.at_s))
        if core.pressure.pressed:
            give_back()
        if core.pressure.halvings != before.halvings:
            _log.warning("memory_pressure", halvings=core.pressure.halvings, load=core.load())
            self._share_out()

    def look(self, now_s: float) -> None:
        """Measure the costs of synopses and the rates of streams, and rebuild the ladder."""
        core = self._core
        elapsed_s = max(now_s - self._looked_s, 1e-3)
        self._looked_s = now_s
        for name, intake in list(core.intakes.items()):
            accepted = intake.durable.accepted
            came = accepted - self._accepted.get(name, accepted)
            self._accepted[name] = accepted
            before = self._rates.get(name, came / elapsed_s)
            self._rates[name] = before + ALPHA * (came / elapsed_s - before)
        live = list(core.streams.values())
        names = {stream.schema.name for stream in live}
        self._rates = {name: rate for name, rate in self._rates.items() if name in names}
        offered = 1.0 + self.load.refused_bytes_per_s / max(self.load.bytes_per_s, 1.0)
        by_query = weights_by_query(live)
        known, units = units_of(live, self._costs, self._rates, offered=offered)
        self._units = list(zip(known, units, strict=True))
        self._of_query = {}
        for at, unit in enumerate(units):
            self._of_query.setdefault(unit.query, []).append(at)
        self._requested_levels = None
        self._weights = {
            stream.schema.name: max(
                (by_query.get(name, 1.0) for name in stream.queries), default=1.0
            )
            for stream in live
        }
        owner = {one.key[0]: one.state.query.schema.tenant for one in known}
        quotas = {tenant: core.tenants.quota(tenant) for tenant in set(owner.values())}
        cpu = {t: q.cpu_ns_per_s for t, q in quotas.items() if q.cpu_ns_per_s is not None}
        if not self.on:  # No tick would lift the limit.
            cpu = {}
        self._steps = FairSteps.of(
            units,
            owner,
            self._caps.look(cpu, sum(self._rates.values())),
            {tenant: quota.weight for tenant, quota in quotas.items()},
        )
        if self.on:
            core.cpu_door.know(self._stream_costs())

    def _stream_costs(self) -> dict[str, StreamCost]:
        """What a tuple of each stream takes, and what of it load may not thin."""
        core, before = self._core, self.load.overhead_ns_per_tuple
        pinned: dict[str, float] = {}
        full: dict[str, float] = {}
        for known, unit in self._units:
            name, cost = known.state.query.schema.name, unit.cost_ns
            whole = float(cost[max(unit.forced, 0)])
            full[name] = full.get(name, before) + whole
            pinned[name] = pinned.get(name, 0.0) + whole * (unit.forced != FREE)
        return {
            name: StreamCost(
                pinned.get(name, 0.0),
                full.get(name, before),
                tenant,
                core.tenants.quota(tenant).weight,
            )
            for name, tenant in self._owners().items()
        }

    def _act(self, state: ControllerState) -> None:
        core = self._core
        if state.overloaded != self.state.overloaded:
            word = "overload_begins" if state.overloaded else "overload_ends"
            _log.warning(word, age_ms=round(self.load.age_ms), load=core.load())
        self.state = state
        core.ease(stretch=state.period_times, coalesces=state.overloaded)
        streams = list(core.streams.items())
        owners = {
            name: (tenant, core.tenants.quota(tenant).weight)
            for name, tenant in self._owners().items()
        }
        several = len({tenant for tenant, _ in owners.values()}) > 1
        blocking = {n for n, s in streams if s.schema.on_overload.policy is Policy.BLOCK}
        blocking &= owners.keys() if several else set()  # A single tenant delays only itself.
        weights = {
            name: self._weights.get(name, 1.0)
            for name, s in streams
            if s.schema.on_overload.policy is Policy.THIN or name in blocking
        }
        core.door.hold(
            state.admit_bytes_per_s,
            weights,
            self.load.at_s,
            TICK_S,
            owners,
            works_bytes_per_s=state.works_bytes_per_s * state.trim,
            waiting_bytes_max=waiting_bytes_max(self.load, self._steps.ends)
            if self.on
            else float("inf"),
            unheld=blocking,
        )
        if self.on:
            core.cpu_door.hold(
                USE * self.load.free_share * NS,
                self.load.at_s,
                TICK_S,
                overloaded=state.overloaded,
            )
        else:
            core.cpu_door.open()
        self.set_levels(state.budget_ns)

    def _next_share(self) -> DropShare:
        """What streams that drop at the door may let in."""
        load, streams = self.load, list(self._core.streams.values())
        dropping = [s.schema.name for s in streams if s.schema.on_overload.drops_at_the_door]
        if not dropping:
            return ALL
        let_in = sum(self._rates.get(name, 0.0) for name in dropping)
        others = max(sum(self._rates.values()) - let_in, 0.0)
        offered = max(load.tuples_per_s - others, 0.0) + load.dropped_per_s
        full_ns = min(self.state.budget_ns, self._steps.ends.full_ns)
        return next_share(self.share, load, offered=offered, others=others, full_ns=full_ns)

    def _let_in(self, share: DropShare) -> None:
        self.share = share
        for intake in list(self._core.intakes.values()):
            if intake.drops is not None:
                intake.drops.let_in(share.let_in)

    def _owners(self) -> dict[str, str]:
        """Return the tenant of each stream."""
        return {name: it.schema.tenant for name, it in list(self._core.streams.items())}

    def set_levels(self, budget_ns: float) -> None:
        """Request the levels that changed: after a look, all that differ from those in force."""
        levels, before = self._steps.levels(budget_ns), self._requested_levels
        self._requested_levels = levels
        is_due = before is not None or self._load_levels.waits  # Present levels may be the last.
        queries: Iterable[str] = self._of_query
        if before is not None:
            changed = np.flatnonzero(levels != before).tolist()
            queries = dict.fromkeys(self._units[at][1].query for at in changed)
        wanted: dict[tuple[str, str], dict[int, int]] = {}
        for query in queries:
            its = [(self._units[at][0], int(levels[at])) for at in self._of_query[query]]
            query_state = its[0][0].state
            to_set = {
                part: at for known, at in its if known.forced == FREE for part in known.key[1]
            }
            if query_state.keys is None:
                to_set[0] = 0  # Counting rows of one group is part of a tuple's way.
            if (
                is_due
                or by_load(query_state.levels, query_state.forced, to_set) != query_state.levels
            ):
                wanted[query_state.query.schema.name, query] = to_set
        if wanted:
            self._load_levels.want(wanted)
