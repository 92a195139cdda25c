"""What overload costs in error: thinning beside dropping, at 5 times what can be read in full.

In virtual time: the real engine, allocator and controllers, on a core whose time is modelled.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Report
from benchmarks.mixed import AGGREGATES, queries
from shedder.engine.engine import Engine
from shedder.simulation.costs import CostModel
from shedder.simulation.machine import VirtualMachine
from shedder.simulation.payload import STREAM, create
from shedder.simulation.record import Answers
from shedder.simulation.result import Result
from shedder.simulation.scenario import Costs, Machine, Scenario
from shedder.simulation.world import World

TIMES = 5.0
RATE = 20_000.0  # Tuples/s; the scale makes them as dear as five times the core.
SECONDS = 12.0
WINDOWS = int(SECONDS) - 1  # That end, with all their tuples, while the stream still runs.
TOLD_MIN = 0.9  # Of the values of all windows: a policy that tells fewer is not compared.
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


@dataclass
class Outcome:
    """One policy. read: the least share of the tuples that an aggregate read.

    coverage: of the intervals. told: of all values of all windows, those that were told.
    errors: by kind, the mean of each aggregate; a value that was not told errs by all of it.
    """

    read: float
    coverage: float
    told: float
    errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def weighted(self) -> float:
        """The mean over all aggregates, each of weight 1."""
        every = [error for errors in self.errors.values() for error in errors]
        return sum(every) / len(every)


def run() -> Report:
    """The same tuples under each policy; errors by kind of aggregate, and over all."""
    scale = TIMES * 1e9 / (RATE * in_full_ns())
    found = {policy: outcome(policy, scale) for policy in POLICIES}
    thin, drop = found["THIN"], found["DROP"]
    if min(thin.told, drop.told) < TOLD_MIN:
        raise RuntimeError(f"values told: THIN {thin.told:.1%}, DROP {drop.told:.1%}: too few")
    kinds = [kind for of in KINDS.values() for kind in of.values()]
    rows = [
        [
            kind,
            *(_percent(_mean(each.errors[kind])) for each in found.values()),
            _ratio(kind, found),
        ]
        for kind in kinds
    ]
    ratio = drop.weighted / thin.weighted
    rows += [
        [
            f"all {AGGREGATES}, each of weight 1",
            *(_percent(each.weighted) for each in found.values()),
            f"{ratio:.2f}×",
        ],
        ["values told", *(_percent(each.told) for each in found.values()), ""],
        ["intervals that held", *(_percent(each.coverage) for each in found.values()), ""],
        ["least share read", *(_percent(each.read) for each in found.values()), ""],
    ]
    lower = [kind for kind in kinds if _of(drop, kind) < 3 * _of(thin, kind)]
    return Report(
        claim=f"Mean relative error of {AGGREGATES} standing aggregates at {TIMES:g} times what "
        "one core reads in full. Wanted: thinning's at least 3 times lower than that of random "
        f"drop at the door, over all. Found: {ratio:.1f} times.",
        columns=["aggregate", *(f"`{policy}`" for policy in POLICIES), "DROP to THIN"],
        rows=rows,
        notes=[
            (
                f"All have the same core, and use what they get of it: {SECONDS:g} s of "
                f"{RATE:,.0f} tuples/s, whose costs are those of the profiles, scaled. What is "
                "dropped costs nothing."
            ),
            (
                "After random drop counts, sums and lists are scaled to the tuples that came; "
                "distinct counts cannot be, and sizes of joins are not."
            ),
            (
                f"Each of the {WINDOWS} windows that end while tuples still come is asked for, of "
                "every policy alike: a value that it does not tell (a group, a NULL, a window that "
                "is put off) counts as an error of 100 %."
            ),
            (
                "Of lists the error is that of the counts of what belongs in them; 100 % for what "
                "is not there. Errors are those of values, however wide the intervals are."
            ),
            f"Not 3 times lower: {', '.join(lower) or 'none'}.",
            (
                "Why thinning does not win by three: the way of a tuple, and what each synopsis "
                "takes however little it reads, are paid whatever is skipped. They are seven "
                "tenths of what may be spent, and what is left reads less than random drop does."
            ),
        ],
    )


def in_full_ns() -> float:
    """What a tuple takes if everything is read, unscaled."""
    scenario = _scenario("THIN", 1.0)
    machine = VirtualMachine(1, 0)
    with (
        tempfile.TemporaryDirectory() as directory,
        Engine.open(Path(directory) / "data", machine=machine) as engine,
    ):
        engine.execute(create(scenario.stream))
        for query in scenario.queries:
            engine.register(query.name, query.sql)
        model = CostModel(Costs(), Machine())
        standing = [each.standing for each in engine.core.stream(STREAM).queries.values()]
        return model.base_ns + sum(model.in_full_ns(each) for each in standing)


def outcome(policy: str, scale: float) -> Outcome:
    """One world."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(_scenario(policy, scale), Path(directory))
        world.run()
        result = Result.of(world)
    if result.problems:
        raise RuntimeError(f"{policy}: {result.problems}")
    compared = [each.compared for each in world.answers.values()]
    held = sum(each[1] for each in compared) / max(sum(each[0] for each in compared), 1)
    sent = float(world.truths[STREAM].rows)
    assert STREAM in world.ledgers
    read = min(each.read for each in world.ledgers[STREAM].queries) / sent
    found = Outcome(read, held, 0.0)
    told = wanted = 0.0
    for name, answers in world.answers.items():
        for output, kind in KINDS[name.partition("_")[0]].items():
            values = _values_of(answers, output)
            found.errors[kind].append(values.error)
            told, wanted = told + values.told, wanted + values.wanted
    found.told = told / wanted
    return found


@dataclass(frozen=True, slots=True)
class Values:
    """Of one aggregate. wanted: one per window and group; told: those that answers had."""

    wanted: float
    told: float
    error_sum: float

    @property
    def error(self) -> float:
        """The mean relative error; of a value that nobody told it is 1."""
        return (self.error_sum + self.wanted - self.told) / self.wanted


def _values_of(answers: Answers, output: str) -> Values:
    """What became of one aggregate; windows without any answer have as many values as others."""
    told, error_sum = answers.error_of.get(output, (0, 0.0))
    in_windows = told + answers.untold.get(output, 0)
    if not in_windows:
        return Values(1.0, 0.0, 0.0)
    windows = max(WINDOWS, answers.checked)
    return Values(in_windows * windows / answers.checked, told, error_sum)


def _scenario(policy: str, scale: float) -> Scenario:
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
        "producers": [{"every_ms": 20, "arrivals": {"shape": "steady", "rate": RATE}}],
    }
    return Scenario.of(values)


def _of(found: Outcome, kind: str) -> float:
    return _mean(found.errors[kind])


def _ratio(kind: str, found: dict[str, Outcome]) -> str:
    thin, drop = _of(found["THIN"], kind), _of(found["DROP"], kind)
    return f"{drop / thin:.2f}×" if thin else "–"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
