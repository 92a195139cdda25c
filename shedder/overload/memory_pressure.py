"""Memory pressure: what to release when the process comes near to its limit. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.overload.load import MachineReading

PRESSED = 0.85  # Of the limit: from here on synopses become smaller, and no query is taken.
FULL = 0.95  # From here on a batch is let in only when none waits to be applied.
EASED = 0.70  # Below it synopses may grow again.
SHRINK_S = 5.0  # Between two halvings: shrinking takes its time to show.
GROW_S = 30.0  # Between two doublings.
HALVINGS_MAX = 3


@dataclass(frozen=True, slots=True)
class Pressure:
    """What memory asks for.

    halvings: of the budget of synopses. pressed: no query is taken, and what is free is given back
    to the system. full: the door keeps the queue as short as can be. since_s: of the last halving
    or doubling.
    """

    halvings: int = 0
    pressed: bool = False
    full: bool = False
    since_s: float = float("-inf")


NONE = Pressure()


def next_pressure(before: Pressure, machine: MachineReading, now_s: float) -> Pressure:
    """One look, every second or so.

    Resident memory may never fall again, whatever is shed: the heap keeps what it has. So nothing
    here closes a door for good. With no room at all, batches come in one after the other, and the
    smallest synopses are an eighth of what they were.

    Args:
      before: of the last look. machine: of this one; a limit of 0 is none. now_s: of a clock that
        never goes back.
    """
    if machine.memory_limit_bytes <= 0:
        return NONE
    share = machine.memory_bytes / machine.memory_limit_bytes
    halvings, since_s = before.halvings, before.since_s
    if share >= PRESSED and halvings < HALVINGS_MAX and now_s - since_s >= SHRINK_S:
        halvings, since_s = halvings + 1, now_s
    elif share < EASED and halvings and now_s - since_s >= GROW_S:
        halvings, since_s = halvings - 1, now_s
    return Pressure(halvings, share >= PRESSED, share >= FULL, since_s)
