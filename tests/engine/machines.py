"""A machine whose periodic work runs when a test calls it, and whose load the test sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shedder.archive.files.file_system import Files
from shedder.engine.runtime.environment import Environment
from shedder.overload.load_meter import Meter


class ByHand(Environment):
    """This machine; tickers run only when the test calls `tick`.

    waiting_bytes: durable bytes not applied yet, as the meter reports; None: the real number.
    """

    def __init__(
        self, clock_us: Callable[[], int] | None = None, files: Files | None = None
    ) -> None:
        super().__init__(clock_us, files)
        self.waiting_bytes: int | None = None
        self._ticks: dict[str, Callable[[], None]] = {}

    def ticker(
        self, name: str, period_s: float, tick: Callable[[], None], *, niceness: int = 0
    ) -> Callable[[], None]:
        """Keep the work for `tick`."""
        del period_s, niceness
        self._ticks[name] = tick
        return partial(self._ticks.pop, name)

    def tick(self, name: str) -> None:
        """Let a period of one ticker pass."""
        self._ticks[name]()

    def meter(self) -> Meter:
        """Return a meter whose queue can be set."""
        return _SetMeter(self)


class _SetMeter(Meter):
    def __init__(self, machine: ByHand) -> None:
        super().__init__(machine.monotonic_ns, machine.cpu_ns)
        self._machine = machine

    @property
    def queue_bytes(self) -> int:
        waiting_bytes = self._machine.waiting_bytes
        return super().queue_bytes if waiting_bytes is None else waiting_bytes
