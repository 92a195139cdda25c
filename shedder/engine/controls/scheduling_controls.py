"""Scheduling controls: the policy by which operators of row queries run, and its latency bound."""

from __future__ import annotations

from collections.abc import Callable

from shedder.dataflow.scheduling.operator_scheduler import SchedulingPolicy
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.lifetime import Lifetime
from shedder.errors import BadSetting

LATENCY_MS_MAX = 3_600_000.0


class SchedulingControls:
    """The policy of this engine until it closes; it begins with FIFO."""

    def __init__(self, core: EngineState, lifetime: Lifetime) -> None:
        self._core = core
        self._lifetime = lifetime

    def set_from(self, key: str, value: str) -> None:
        """Set `policy`, or `latency_ms`, to a text, from the next batch on.

        Raises:
          BadSetting: the message shows the value, and what would be right.
        """
        rows = self._core.rows
        if key == "policy":
            policy = _policy(value)
            self._do(lambda: rows.set_policy(policy))
        else:
            latency_s = _latency_ms(value) / 1e3
            self._do(lambda: rows.schedule.set_latency(latency_s))

    def facts(self) -> list[tuple[str, dict[str, object]]]:
        """Return the policy under an empty name, and the queues of each query under its own."""
        return self._core.look(self._facts)

    def _facts(self) -> list[tuple[str, dict[str, object]]]:
        schedule = self._core.rows.schedule
        found: list[tuple[str, dict[str, object]]] = [
            (
                "",
                {
                    "policy": schedule.policy.value,
                    "latency_ms": f"{schedule.latency_s * 1e3:g}",
                    "queue_bytes": schedule.queue_bytes,
                    "peak_bytes": schedule.peak_bytes,
                },
            )
        ]
        for path, chains in schedule.paths():
            facts = {
                "operators": ", ".join(path.names),
                "read_bytes": path.read_bytes,
                "filtered_bytes": path.filtered_bytes,
                "chains": chains,
            }
            found.append((path.query, facts))
        return found

    def _do(self, work: Callable[[], None]) -> None:
        self._lifetime.check_open()
        self._core.executor.call(work, urgent=True).result()


def _policy(value: str) -> SchedulingPolicy:
    try:
        return SchedulingPolicy(value.lower())
    except ValueError:
        names = ", ".join(each.value for each in SchedulingPolicy)
        raise BadSetting(f"policy of the scheduler is {value!r}; there are {names}") from None


def _latency_ms(value: str) -> float:
    try:
        latency_ms = float(value)
    except ValueError:
        latency_ms = -1.0
    if not 0 <= latency_ms <= LATENCY_MS_MAX:
        raise BadSetting(
            f"latency_ms of the scheduler is {value!r}; it must be a number of milliseconds, from "
            f"0 to {LATENCY_MS_MAX:g}"
        )
    return latency_ms
