"""The watermark: event time before which a stream promises to be complete."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.streams.batches import TIME_MIN_US


@dataclass(slots=True)
class Watermark:
    """Follows the largest event time seen, at a distance, and never goes back.

    A tuple dated more than `future_us_max` after its arrival does not move it: one wrong clock
    among the producers must not close every window of the others.

    lateness_us: how far it stays behind the largest event time. value_us: None before any tuple;
    never before the first of all event times, of which no calendar would know.
    """

    lateness_us: int
    future_us_max: int
    value_us: int | None = None

    def restore(self, value_us: int | None) -> None:
        """Go on from a value that it had before."""
        self.value_us = value_us

    def limit_us(self, arrival_us: int) -> int:
        """The latest event time that is believed of a tuple which arrived then."""
        return arrival_us + self.future_us_max

    def observe(self, event_us: int, arrival_us: int) -> None:
        """A tuple with this event time has arrived."""
        if event_us <= self.limit_us(arrival_us):
            self.raise_to(self.after(event_us))

    def after(self, event_us: int) -> int:
        """Return the watermark after a tuple with this event time."""
        promised = max(event_us - self.lateness_us, TIME_MIN_US)
        return promised if self.value_us is None else max(self.value_us, promised)

    def raise_to(self, watermark_us: int) -> None:
        """A heartbeat: nothing before this will come."""
        watermark_us = max(watermark_us, TIME_MIN_US)
        if self.value_us is None or watermark_us > self.value_us:
            self.value_us = watermark_us
