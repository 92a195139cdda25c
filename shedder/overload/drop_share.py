"""Share of the tuples to admit on streams that drop. Pure, as the controller."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shedder.overload.controller import AGE_MS, CLIMB, DOWN, DRAIN_S, HOLD, UP, USE
from shedder.overload.load import NS, Load

LEAST = 1 / 4096  # Something always comes in, so that windows close.


@dataclass(frozen=True, slots=True)
class DropShare:
    """let_in: of the tuples offered. rooms: the newest shares that there was room for."""

    let_in: float = 1.0
    rooms: tuple[float, ...] = ()


ALL = DropShare()


def next_share(
    share: DropShare, load: Load, *, offered: float, others: float, full_ns: float
) -> DropShare:
    """One tick, by the controller's signal and with its patience.

    Dropping begins when the oldest batch has waited for too long and there is less room than what
    is offered. Less is let in at once, more when there has been room for a while.

    Args:
      share: of the last tick.
      load: of this one.
      offered: tuples/s of the streams that drop, what was dropped included.
      others: tuples/s of those that do not.
      full_ns: what all synopses take of a tuple in full; of streams that thin, as they do now.
    """
    if offered <= 0:
        return ALL
    cost_ns = max(load.overhead_ns_per_tuple + full_ns, 1e-3)
    can = USE * NS * load.free_share / cost_ns - load.queue_tuples / DRAIN_S
    room = min(max((can - others) / offered, LEAST), 1.0)
    if share.let_in >= 1.0 and (load.age_ms < AGE_MS or room >= 1.0):
        return ALL
    if room < DOWN * share.let_in:
        return DropShare(room)
    rooms = (*share.rooms, room)[-HOLD:]
    lowest = min(rooms)
    if len(rooms) < HOLD or not (lowest >= 1.0 or lowest > UP * share.let_in):
        return replace(share, rooms=rooms)
    reached = min(lowest, CLIMB * share.let_in)
    return ALL if reached >= 1.0 else DropShare(reached, rooms[HOLD // 2 :])
