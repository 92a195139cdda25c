"""Load: the measurements of one tick, as frozen numbers."""

from __future__ import annotations

from dataclasses import dataclass

NS = 1e9


@dataclass(frozen=True, slots=True)
class MachineReading:
    """What the machine has to say of this process.

    cpu_share: of the cores that it may use, since the last look; 1: all of them.
    disk_bytes_per_s: what it wrote. memory_bytes: resident; memory_limit_bytes: of its cgroup, or
    of the machine.
    """

    cpu_share: float = 0.0
    disk_bytes_per_s: float = 0.0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """One tick's numbers. All times are of a clock that was passed in, so a world can be replayed.

    at_s: when; of a clock that never goes back.
    tuples_per_s, bytes_per_s: what arrives, made durable; smoothed over some ticks.
    refused_bytes_per_s: what was refused at the door for want of room; smoothed.
    dropped_per_s: tuples that were dropped at the door, by policy; smoothed.
    queue_tuples, queue_bytes: durable, and not applied yet. age_ms: since the oldest of these was
      made durable; 0: nothing waits. What still waits for the disk is in none of them, because no
      shedding of work drains it.
    overhead_ns_per_tuple: what applying costs beside the synopses: the archive's tail, the
      samples, the answers of windows that close; smoothed.
    answers_share: of a core, what answers of standing queries take, at the refresh periods of now;
      smoothed.
    free_share: the part of the apply thread's time that questions and checkpoints leave; smoothed.
    usual_bytes_per_tuple: of what arrived last, however long ago; 0: nothing has arrived yet.
    has_applied: tuples have been applied since the start, so their cost is known.
    machine: CPU, disk and memory.
    """

    at_s: float
    tuples_per_s: float = 0.0
    bytes_per_s: float = 0.0
    refused_bytes_per_s: float = 0.0
    dropped_per_s: float = 0.0
    queue_tuples: int = 0
    queue_bytes: int = 0
    age_ms: float = 0.0
    overhead_ns_per_tuple: float = 0.0
    answers_share: float = 0.0
    free_share: float = 1.0
    usual_bytes_per_tuple: float = 0.0
    has_applied: bool = True
    machine: MachineReading = MachineReading()

    @property
    def bytes_per_tuple(self) -> float:
        """Of what arrives, or else of what waits, or else of what arrived last.

        After a pause the first burst is bounded by what is known of the tuples before it.
        """
        if self.tuples_per_s > 0:
            return self.bytes_per_s / self.tuples_per_s
        if self.queue_tuples:
            return self.queue_bytes / self.queue_tuples
        return self.usual_bytes_per_tuple

    def room_ns_per_tuple(self, *, use: float, drain_s: float) -> float:
        """What a tuple's synopses may cost, if arrivals and the queue are to be worked off.

        Args:
          use: of the time that is free, the part to plan with.
          drain_s: in how many seconds the queue is to be empty.

        Returns:
          ns per tuple; negative where not even the rest of a tuple's way can be paid, inf where
          nothing comes and nothing waits.
        """
        offered = self.tuples_per_s + self.queue_tuples / drain_s
        if offered <= 0:
            return float("inf")
        return use * NS * self.free_share / offered - self.overhead_ns_per_tuple
