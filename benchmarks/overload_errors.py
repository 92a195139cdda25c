"""What overload costs in error: thinning beside dropping, at 5 times what can be read in full.

In virtual time: the real engine, allocator and controllers, on a core whose time is modelled, at
the rate that is 5 times what `benchmarks/overload.py` finds a core to read; at lower rates, too,
because a tenth of the tuples in a window has three times the error by chance, and the same by bias.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Report
from benchmarks.workloads.mixed import AGGREGATES, queries
from shedder.engine.engine import Engine
from shedder.simulation.costs import CostModel
from shedder.simulation.result import Result
from shedder.simulation.scenario import Scenario, ScenarioCosts, ScenarioMachine
from shedder.simulation.time_series import Answers
from shedder.simulation.tuple_generator import STREAM, create
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.simulation.world import World

TIMES = 5.0
RATE = 1_750_000.0  # Tuples/s: 5 times 350,000. A scale makes it 5 times the modelled core's.
LOWER_RATES = (20_000.0, 200_000.0)  # THIN beside DROP.
SECONDS = 12.0
WINDOWS = int(SECONDS) - 1  # That end, with all their tuples, while the stream still runs.
REPORTED_MIN = 0.9  # Of the values of all windows: a policy that tells fewer is not compared.
POLICIES = ("THIN", "DROP", "DROP LEAST value", "DROP OLDEST")
KINDS = {
    "all": {
        "n": "COUNT(*)",
        "total": "SUM, heavy tail",
        "keys": "COUNT(DISTINCT)",
        "tail": "QUANTILE 0.99",
        "busiest": "TOP, 10",
    },
    "by": {
        "n": "COUNT(*) by group",
        "total": "SUM by group",
        "mean": "AVG by group",
        "keys": "COUNT(DISTINCT) by group",
        "middle": "QUANTILE 0.5 by group",
    },
    "joined": {"pairs": "JOIN_SIZE"},
}
NOTES = (
    (
        f"All have the same core, and use what they get of it: {SECONDS:g} s of {RATE:,.0f} "
        "tuples/s, whose costs are those of the profiles, scaled. What is dropped costs nothing "
        "here; in truth receiving it, checking it and dropping it takes more than half of what "
        "the way of a tuple does."
    ),
    (
        "After random drop counts, sums and lists are scaled to the tuples that came; distinct "
        "counts cannot be, and sizes of joins are not."
    ),
    (
        f"Each of the {WINDOWS} windows that end while tuples still come is asked for, of every "
        "policy alike: a value that it does not tell (a group, a NULL, a window that is put off) "
        "counts as an error of 100 %."
    ),
    (
        "Of lists the error is that of the counts of what belongs in them; 100 % for what is not "
        "there. Errors are those of values, however wide the intervals are. Half a width is "
        "relative to the value, the mean over the queries' intervals."
    ),
    (
        f"With {RATE / LOWER_RATES[0]:.0f} times less tuples in a window all errors by chance are "
        "larger, and what no scaling mends weighs less beside them."
    ),
)
WHY_NOT_BY_THREE = (
    "Why thinning does not win by three there: the way of a tuple, and what each synopsis takes "
    "however little it reads, are paid whatever is skipped. They are seven tenths of what may be "
    "spent, and what is left reads less than random drop does. What it has for it is what each "
    "answer knows of its error."
)


@dataclass
class Outcome:
    """One policy. read: the least share of the tuples that an aggregate read.

    coverage: of the intervals; width: the mean of half of one, relative to its value.
    reported: of all values of all windows, those that were told.
    errors: by kind, the mean of each aggregate; a value that was not told errs by all of it.
    """

    read: float
    coverage: float
    width: float
    reported: float
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def weighted(self) -> float:
        """The mean over all aggregates, each of weight 1."""
        every = [error for errors in self.errors.values() for error in errors]
        return sum(every) / len(every)


def run() -> Report:
    """The same tuples under each policy; errors by kind of aggregate, and over all."""
    in_full = in_full_ns()
    found = {policy: outcome(policy, RATE, in_full) for policy in POLICIES}
    thin, drop = found["THIN"], found["DROP"]
    if min(thin.reported, drop.reported) < REPORTED_MIN:
        raise RuntimeError(
            f"values told: THIN {thin.reported:.1%}, DROP {drop.reported:.1%}: too few"
        )
    kinds = [kind for of in KINDS.values() for kind in of.values()]
    rows = [
        *(_row(kind, found, partial(_of, kind=kind)) for kind in kinds),
        _row(f"all {AGGREGATES}, each of weight 1", found, lambda each: each.weighted),
        *(_at_a_lower_rate(rate, in_full) for rate in LOWER_RATES),
        _row("half width of an interval", found, lambda each: each.width, compared=False),
        _row("values told", found, lambda each: each.reported, compared=False),
        _row("intervals that held", found, lambda each: each.coverage, compared=False),
        _row("least share read", found, lambda each: each.read, compared=False),
    ]
    lower = [kind for kind in kinds if _of(drop, kind) < 3 * _of(thin, kind)]
    return Report(
        claim=f"Mean relative error of {AGGREGATES} standing aggregates at {TIMES:g} times what "
        "one core reads in full. Wanted: thinning's at least 3 times lower than that of random "
        f"drop at the door, over all. Found: {drop.weighted / thin.weighted:.1f} times.",
        columns=["aggregate", *(f"`{policy}`" for policy in POLICIES), "DROP to THIN"],
        rows=rows,
        notes=[*NOTES, f"Not 3 times lower: {', '.join(lower) or 'none'}.", WHY_NOT_BY_THREE],
    )


def in_full_ns() -> float:
    """What a tuple takes if everything is read, unscaled."""
    scenario = _scenario("THIN", 1.0, RATE)
    machine = VirtualEnvironment(1, 0)
    with (
        tempfile.TemporaryDirectory() as directory,
        Engine.open(Path(directory) / "data", machine=machine) as engine,
    ):
        engine.execute(create(scenario.stream))
        for query in scenario.queries:
            engine.register(query.name, query.sql)
        model = CostModel(ScenarioCosts(), ScenarioMachine())
        standing = [each.state for each in engine.core.stream(STREAM).queries.values()]
        return model.base_ns + sum(model.in_full_ns(each) for each in standing)


def outcome(policy: str, rate: float, in_full: float) -> Outcome:
    """One world. rate: tuples/s; in_full: what `in_full_ns` says."""
    scale = TIMES * 1e9 / (rate * in_full)
    with tempfile.TemporaryDirectory() as directory:
        world = World(_scenario(policy, scale, rate), Path(directory))
        world.run()
        result = Result.of(world)
    if result.problems:
        raise RuntimeError(f"{policy}: {result.problems}")
    compared = [each.compared for each in world.answers.values()]
    held = sum(each[1] for each in compared) / max(sum(each[0] for each in compared), 1)
    sent = float(world.truths[STREAM].rows)
    assert STREAM in world.ledgers
    read = min(each.read for each in world.ledgers[STREAM].queries) / sent
    every = world.answers.values()
    width = sum(each.width_sum for each in every) / sum(each.widths for each in every)
    found = Outcome(read, held, width, 0.0)
    reported = wanted = 0.0
    for name, answers in world.answers.items():
        for output, kind in KINDS[name.partition("_")[0]].items():
            values = _values_of(answers, output)
            found.errors[kind].append(values.error)
            reported, wanted = reported + values.reported, wanted + values.wanted
    found.reported = reported / wanted
    return found


@dataclass(frozen=True, slots=True)
class AnsweredValues:
    """Of one aggregate. wanted: one per window and group; told: those that answers had."""

    wanted: float
    reported: float
    error_sum: float

    @property
    def error(self) -> float:
        """The mean relative error; it is 1 for a value that was not answered."""
        return (self.error_sum + self.wanted - self.reported) / self.wanted


def _values_of(answers: Answers, output: str) -> AnsweredValues:
    """What became of one aggregate; windows without any answer have as many values as others."""
    reported, error_sum = answers.error_of.get(output, (0, 0.0))
    in_windows = reported + answers.untold.get(output, 0)
    if not in_windows:
        return AnsweredValues(1.0, 0.0, 0.0)
    windows = max(WINDOWS, answers.checked)
    return AnsweredValues(in_windows * windows / answers.checked, reported, error_sum)


def _at_a_lower_rate(rate: float, in_full: float) -> list[str]:
    """The row of all aggregates."""
    thin, drop = (outcome(policy, rate, in_full) for policy in ("THIN", "DROP"))
    ratio = f"{drop.weighted / thin.weighted:.2f}×"
    errors = [_percent(thin.weighted), _percent(drop.weighted)]
    return [f"the same at {rate:,.0f} tuples/s", *errors, "", "", ratio]


def _scenario(policy: str, scale: float, rate: float) -> Scenario:
    values: dict[str, Any] = {
        "title": policy,
        "seconds": SECONDS,
        "machine": {
            "scale": scale,
            "disk_bytes_per_s": "64GiB",
            "ingest_queue_bytes": "64MiB",
            "answer_us": 0.0,
        },
        "stream": {"on_overload": policy, "lateness_s": 0.2, "keys": 100_000, "sigma": 1.5},
        "queries": [{"name": name, "sql": text} for name, text in queries(STREAM)],
        "producers": [{"every_ms": 20, "arrivals": {"shape": "steady", "rate": rate}}],
    }
    return Scenario.of(values)


def _row(
    name: str,
    found: dict[str, Outcome],
    figure: Callable[[Outcome], float],
    *,
    compared: bool = True,
) -> list[str]:
    """A figure of every policy; compared: and how many times THIN's is DROP's."""
    thin, drop = figure(found["THIN"]), figure(found["DROP"])
    ratio = (f"{drop / thin:.2f}×" if thin else "–") if compared else ""
    return [name, *(_percent(figure(each)) for each in found.values()), ratio]


def _of(found: Outcome, kind: str) -> float:
    errors = found.errors[kind]
    return sum(errors) / len(errors) if errors else 0.0


def _percent(value: float) -> str:
    return f"{100 * value:,.0f} %" if value >= 10 else f"{100 * value:.3g} %"
