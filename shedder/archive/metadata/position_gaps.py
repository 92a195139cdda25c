"""Holes: positions of a stream that nothing holds any more, because the log was damaged."""

from __future__ import annotations

from collections.abc import Iterable

PositionRange = tuple[int, int]  # positions [first, end)


def holes(
    held: Iterable[PositionRange], *, removed: int, end: int = 0
) -> tuple[PositionRange, ...]:
    """The stretches between those that are held, in order.

    Args:
      held: what runs, the tail and purges account for. Below 0 (what was backfilled) nothing is
        missing: of stretches that are given out there, not all are used.
      removed: retention has removed everything below it.
      end: everything below it has been there.
    """
    found = []
    reached = max(removed, 0)
    for first, stop in (*sorted(held), (end, end)):
        if first > reached:
            found.append((reached, first))
        reached = max(reached, stop)
    return tuple(found)


def lost_text(hole: PositionRange) -> str:
    """What is lost, in words."""
    first, end = hole
    return f"{end - first:,} tuples, positions {first} to {end}, lost with damaged bytes of the log"
