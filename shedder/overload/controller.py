"""Overload controller: a pure step from the load of a tick to a CPU budget and limits.

`shedding_steps.py` decides the level of each synopsis within that budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shedder.overload.load import NS, Load

TICK_S = 0.1
AGE_MS = 100.0  # The oldest batch waits longer than this: the signal that there is too much work.
USE = 0.95  # Of the apply thread's free time; the rest takes up what bursts within a tick bring.
DRAIN_S = 0.5  # A queue is to be gone so soon by thinning; longer is steadier, and later.
PATIENCE_S = 2.0  # ... and so soon before freshness and the door are asked to help.
HOLD = 10  # Ticks that there must have been more room, each of them, before any of it is used.
DOWN = 0.95  # Less room than this part of the budget makes the budget smaller,
UP = 1.15  # more than so many times the budget makes it larger,
CLIMB = 4.0  # ... by this factor at most, every HOLD // 2 ticks.
LEAST = 1 / 1024  # Of the full cost: where climbing begins when the budget was nothing.
STRETCH_MAX = 16  # Refresh periods get so many times as long at most.
ANSWERS_LEAST = 0.01  # Of a core: answers that take less are not put off, which would save nothing.
REFUSE_AGE_MS = 500.0  # Below this age no batch is refused: the queue takes a short burst.
ADMIT_LEAST = 0.05  # Of what can be worked off: so much is let in whatever the queue.
WAITS_S = 0.25  # Behind a door that is held so much waits as is worked off in this time.
TRIM = 0.08  # While nothing waits there, so much more is believed to be worked off after each tick.
TRIM_MAX = 4.0  # What can be worked off is believed to be so many times as much at most, or less.
ALPHA_UP, ALPHA_DOWN = 0.3, 0.03  # What a tick counts in what can be worked off: more, or less.
# Bytes; limit of the queue until the first batch after a start is applied.
STARTING_QUEUE_BYTES = 65_536.0
QUEUE_S_MAX = 0.5  # Of a whole core at the least cost: more than that never waits.


@dataclass(frozen=True, slots=True)
class CostRange:
    """CPU of all synopses per arriving tuple, read in full and thinned as far as possible.

    full_ns: ns per tuple when everything is read.
    least_ns: ns per tuple when every synopsis that load may thin is at its lowest level. Synopses
      with a forced level, and those that thinning makes no cheaper, count in full.
    """

    full_ns: float
    least_ns: float


@dataclass(frozen=True, slots=True)
class ControllerState:
    """What the controller remembers, and what it has decided.

    budget_ns: CPU of the synopses per arriving tuple; inf: no overload, everything is read.
    stretch: how far freshness is asked for, a power of two. puts_off: answers took a part of the
      core that is worth having, so that refresh periods are really so many times as long.
    admit_bytes_per_s: what the door lets in; inf: everything.
    works_bytes_per_s: while it is held, what can be worked off, smoothed. trim: times that, which
      has turned out to be so.
    rooms: the newest rooms since the budget was last raised, in ns per tuple, HOLD at most.
    calm: ticks since freshness or the door were last found too short of room.
    """

    budget_ns: float = float("inf")
    stretch: int = 1
    puts_off: bool = False
    admit_bytes_per_s: float = float("inf")
    rooms: tuple[float, ...] = ()
    calm: int = 0
    works_bytes_per_s: float = 0.0
    trim: float = 1.0

    @property
    def overloaded(self) -> bool:
        """Return whether anything is thinned, stretched or refused."""
        return self.budget_ns != float("inf")

    @property
    def period_times(self) -> int:
        """Return how many times as long refresh periods are."""
        return self.stretch if self.puts_off else 1

    @property
    def asks_help(self) -> bool:
        """Return whether producers are asked to send summaries: the next step is to refuse them."""
        return self.stretch == STRETCH_MAX


NORMAL = ControllerState()


def step(state: ControllerState, load: Load, ends: CostRange) -> ControllerState:
    """Compute the state of the next tick.

    There is one signal, the age of the oldest queued batch. There is one quantity, the room: CPU
    that a tuple's synopses may use so that arrivals and queue are worked off. Room counts only
    after the signal, so a wrong cost model sheds no load without need. Less room is used at once,
    more room only after it has lasted. The budget of a steady overload is thus the least room of
    the last ticks, and does not swing with every burst.

    The order of load shedding is fixed: precision (the budget), then freshness (stretch), then
    help (`asks_help`; producers that can send summaries), then admission. Each step begins only
    when the step before it is at its end.

    There is no latch-up. Age and queue hold only work that applying drains, whatever the budget.
    At any load, a tuple costs no more at a smaller budget than at a larger one.

    Args:
      state: state of the last tick; NORMAL before the first tick.
      load: load of this tick.
      ends: costs of the synopses at the present rates and levels.
    """
    room = load.room_ns_per_tuple(use=USE, drain_s=DRAIN_S)
    if not state.overloaded and (load.age_ms < AGE_MS or room >= ends.full_ns):
        return NORMAL
    if state.admit_bytes_per_s != float("inf") and load.refused_bytes_per_s > 0:
        # Of what is offered there is more than arrives: what that leaves free is not free.
        room = min(room, ends.least_ns)
    return _door(_freshness(_precision(state, room, load, ends), load, ends), load, ends)


def _precision(state: ControllerState, room: float, load: Load, ends: CostRange) -> ControllerState:
    wanted = max(room, ends.least_ns)
    if not state.overloaded or wanted < DOWN * state.budget_ns:
        return replace(state, budget_ns=min(wanted, ends.full_ns), rooms=())
    rooms = (*state.rooms, wanted)[-HOLD:]
    lowest = min(rooms)
    leaving = lowest >= ends.full_ns
    if len(rooms) < HOLD or not (leaving or lowest > UP * state.budget_ns):
        return replace(state, rooms=rooms)
    reach = CLIMB * max(state.budget_ns, LEAST * ends.full_ns)
    if leaving and reach >= ends.full_ns:
        held_back = state.stretch > 1 or state.admit_bytes_per_s != float("inf")
        held_back |= load.age_ms >= AGE_MS  # Else the next tick might be one of another overload.
        return replace(state, budget_ns=ends.full_ns, rooms=rooms) if held_back else NORMAL
    return replace(state, budget_ns=min(lowest, reach), rooms=rooms[HOLD // 2 :])


def _freshness(state: ControllerState, load: Load, ends: CostRange) -> ControllerState:
    """Lengthen refresh periods while even the thinnest synopses cost too much; shorten them later.

    If answers cost almost nothing, skipping windows saves nothing. The stretch then still grows
    step by step, so that help and admission begin at the same time as otherwise, but no answer is
    skipped. Once answers are skipped, they cost less, and skipping continues.
    """
    if not state.overloaded:
        return state
    room = load.room_ns_per_tuple(use=USE, drain_s=PATIENCE_S)
    if room < ends.least_ns and load.age_ms >= AGE_MS:
        puts_off = state.puts_off or load.answers_share >= ANSWERS_LEAST
        stretch = min(2 * state.stretch, STRETCH_MAX)
        return replace(state, stretch=stretch, puts_off=puts_off, calm=0)
    calm = state.calm + 1
    held = state.admit_bytes_per_s != float("inf")  # The door opens first.
    if calm % (HOLD // 2) == 0 and room > ends.least_ns and not held:
        stretch = max(state.stretch // 2, 1)
        return replace(state, stretch=stretch, puts_off=state.puts_off and stretch > 1, calm=calm)
    return replace(state, calm=calm)


def _door(state: ControllerState, load: Load, ends: CostRange) -> ControllerState:
    """Let in what can be worked off; open again when no more than that is offered.

    What can be worked off is known from costs and from what others leave of the core, both of which
    swing; what is let in swings less, and makes up for what was believed wrongly by the length of
    the queue: too short a one, and the apply thread has nothing to do while others are refused; too
    long a one, and it is worked off first. A stall makes the queue long, and is over: it changes
    next to nothing of what is believed.
    """
    if not state.overloaded:
        return state
    can = load.free_share * USE * worked_off_bytes_per_s(load, ends)
    if can == float("inf"):
        return state if load.refused_bytes_per_s else _opened(state)  # Nothing comes or waits.
    admitting = state.admit_bytes_per_s != float("inf")
    offered = load.bytes_per_s + load.refused_bytes_per_s
    full = state.stretch == STRETCH_MAX and load.age_ms >= REFUSE_AGE_MS
    if not admitting and not (full and offered > can):
        return state
    before = state.works_bytes_per_s if admitting else can
    works = before + (ALPHA_UP if can > before else ALPHA_DOWN) * (can - before)
    if load.age_ms < AGE_MS and offered < works * state.trim and state.calm >= HOLD:
        return _opened(state)
    trim = state.trim
    short = 1.0 - load.queue_bytes / (works * trim * WAITS_S)  # 0: as wanted; 1: nothing waits.
    stalls = short < -1.0  # Nothing is let in, and it is worked off before anything is learnt.
    if not stalls and (short < 0 or load.refused_bytes_per_s > 0):  # Else no more is offered.
        trim = min(max(trim * (1.0 + TRIM * short), 1 / TRIM_MAX), TRIM_MAX)
    allowed = max(works * trim * (1.0 + short), ADMIT_LEAST * works)
    return replace(state, admit_bytes_per_s=allowed, works_bytes_per_s=works, trim=trim)


def _opened(state: ControllerState) -> ControllerState:
    """Lift the admission limit."""
    return replace(state, admit_bytes_per_s=float("inf"), works_bytes_per_s=0.0, trim=1.0)


def worked_off_bytes_per_s(load: Load, ends: CostRange) -> float:
    """Rate at which a whole core applies bytes at the lowest levels; inf: the cost is unknown."""
    cost = load.overhead_ns_per_tuple + ends.least_ns
    if cost <= 0 or load.bytes_per_tuple <= 0:
        return float("inf")
    return NS / cost * load.bytes_per_tuple


def waiting_bytes_max(load: Load, ends: CostRange) -> float:
    """What may wait to be applied, whatever the door: what comes before it is held is bounded, too.

    Until work is shed, the signal must come; until the door is held, all that goes before it. A
    flood that nothing can drain but refusal would bring seconds of work meanwhile. After a start
    clients send what they have gathered, and it is not known yet what a tuple costs.
    """
    if not load.has_applied:
        return STARTING_QUEUE_BYTES
    return QUEUE_S_MAX * worked_off_bytes_per_s(load, ends)
