"""Queues in virtual time: arrivals, costs and selectivities are given, the scheduler picks."""

from __future__ import annotations

from collections import deque
from math import inf

from shedder.dataflow.scheduling.operator_scheduler import (
    OperatorScheduler,
    ReadyOperator,
    SchedulingPolicy,
)
from shedder.dataflow.scheduling.progress_chart import OperatorRate


def totals(
    policy: SchedulingPolicy,
    paths: dict[str, list[OperatorRate]],
    arrivals: dict[str, list[tuple[float, float]]],
    *,
    times: list[float],
    pieces: int = 1,
    latency_bound: float = inf,
) -> tuple[list[float], float, float]:
    """Run queues until they are empty.

    Args:
      paths: operators by path. arrivals: by path, (time, units), rising.
      times: at which the totals are wanted, behind what ends or comes then.
      pieces: that an arrival is divided into; an operator runs one piece without a break.

    Returns:
      units in all queues at each time, their peak, and the longest stay of a piece.
    """
    scheduler = OperatorScheduler(policy, latency_bound)
    for path, rates in paths.items():
        scheduler.set_rates(path, rates)
    coming = deque(sorted((at, path, units) for path, its in arrivals.items() for at, units in its))
    queues = {
        (path, place): deque() for path, rates in paths.items() for place in range(len(rates))
    }
    now, held, peak, longest = 0.0, 0.0, 0.0, 0.0
    steps = [(0.0, 0.0)]

    def arrive(until: float) -> None:
        nonlocal held, peak
        while coming and coming[0][0] <= until + 1e-9:
            at, path, units = coming.popleft()
            queues[path, 0].extend([(at, units / pieces)] * pieces)
            held += units
            peak = max(peak, held)
            steps.append((at, held))

    arrive(now)
    while coming or any(queues.values()):
        ready = [
            ReadyOperator(path, place, queue[0][0])
            for (path, place), queue in queues.items()
            if queue
        ]
        if not ready:
            now = coming[0][0]
            arrive(now)
            continue
        it = scheduler.pick(ready, now)
        since, units = queues[it.path, it.place].popleft()
        rate, is_last = paths[it.path][it.place], it.place == len(paths[it.path]) - 1
        ends = now + rate.cost * units
        arrive(ends - 1e-6)
        made = 0.0 if is_last else units * rate.selectivity
        if not is_last:
            queues[it.path, it.place + 1].append((since, made))
        longest = max(longest, ends - since) if is_last else longest
        held += made - units
        now = ends
        steps.append((now, held))
        arrive(now)
        peak = max(peak, held)
    at_times = [[total for at, total in steps if at <= time + 1e-6][-1] for time in times]
    return at_times, peak, longest


def least_peak(path: list[OperatorRate], times: list[float]) -> float:
    """Return the least peak that any order of operators has, for a unit that comes at each time.

    The search is over all orders of the operators' runs, each of a unit without a break, and over
    waits for the next arrival.
    """
    last = len(path) - 1
    best = inf
    seen: dict[tuple[float, int, tuple[tuple[float, ...], ...]], float] = {}

    def search(now: float, came: int, queues: tuple[tuple[float, ...], ...], peak: float) -> None:
        nonlocal best
        while came < len(times) and times[came] <= now:
            queues = ((*queues[0], 1.0), *queues[1:])
            came += 1
        peak = max(peak, sum(map(sum, queues)))
        key = (now, came, queues)
        if peak >= min(best, seen.get(key, inf)):
            return
        seen[key] = peak
        if came == len(times) and not any(queues):
            best = peak
            return
        if came < len(times):
            search(times[came], came, queues, peak)
        for place, rate in enumerate(path):
            if not queues[place]:
                continue
            units, *rest = queues[place]
            ends, held = now + rate.cost * units, sum(map(sum, queues))
            behind = came
            while behind < len(times) and times[behind] < ends:
                behind += 1
            changed = list(queues)
            changed[place] = tuple(rest)
            if place < last:
                changed[place + 1] = (*queues[place + 1], units * rate.selectivity)
            if behind > came:
                changed[0] = (*changed[0], *[1.0] * (behind - came))
            search(ends, behind, tuple(changed), max(peak, held + behind - came))

    search(0.0, 0, tuple(() for _ in path), 0.0)
    return best
