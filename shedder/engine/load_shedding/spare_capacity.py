"""Spare capacity: CPU time for background work, as of the controller's last tick."""

from __future__ import annotations


class SpareCapacity:
    """Written by the controller at each tick, read by background work. Safe from any thread.

    idle: whether there is time for background work. share: of a core, that such work may
    take; 1 without load.
    """

    def __init__(self) -> None:
        self.idle = True
        self.share = 1.0

    def note(self, *, idle: bool, share: float) -> None:
        """Replace what was found before."""
        self.idle, self.share = idle, share
