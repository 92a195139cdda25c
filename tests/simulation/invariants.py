"""Worlds of two virtual seconds from random scenarios, one per seed, and what must hold in all.

`python -m tests.simulation.invariants FIRST COUNT [SECONDS]` looks at so many seeds; `make
simulate-long` at long ones. A seed that fails is printed, and replays the same world.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shedder.simulation.result import Result
from shedder.simulation.scenario import Scenario
from shedder.simulation.time_series import Answers
from shedder.simulation.world import World
from tests.simulation.worlds import run
from tests.truth import EVALUATED

QUERIES = (
    "COUNT(*) AS n, SUM(value) AS a",
    "COUNT(*) AS n, AVG(value) AS a, MAX(size) AS b",
    "COUNT(DISTINCT key) AS a, COUNT(value) AS b",
    "QUANTILE(value, 0.9) AS a, SUM(size) AS b",
    "STDDEV(value) AS a, MIN(value) AS b",
)
WHERES = ("", "WHERE ok", "WHERE key < 5")
GROUPS = ("", "key % 3")
RUN_ALARM = 1e-8  # Alarm of each gate; some 250 gates on seeds of the run, per world and overall.
SLOWEST_SCALE = 8_000.0  # A tuple then takes half a millisecond.
REPLAYED_EVERY = 20  # Of so many seeds one is run twice: the time that this takes is a twentieth.


@dataclass
class Found:
    """All worlds together. answers: by query; those that were thinned also apart.

    slowest_s: longest time to full precision after load and queue have ended.
    slowest_after_load_s: the same after the load alone.
    left_out: worlds in which producers left tuples out. replayed: worlds that were run twice, from
    the same seed.
    """

    worlds: int = 0
    thinned: int = 0
    crashed: int = 0
    refused: int = 0
    tuples: int = 0
    merges: int = 0
    left_out: int = 0
    of_tenants: int = 0
    slowest_s: float = 0.0
    slowest_after_load_s: float = 0.0
    replayed: int = 0
    answers: dict[str, Answers] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, seed: int, world: World) -> None:
        self.worlds += 1
        self.crashed += world.server.lives > 1
        self.refused += world.server.refusals > 0
        self.merges += world.server.merges
        drops = world.scenario.stream.on_overload.startswith("DROP")
        self.left_out += not drops and any(each.dropped for each in world.ledgers.values())
        self.of_tenants += bool(world.scenario.tenants)
        self.tuples += sum(truth.rows for truth in world.truths.values())
        self.wrong += [f"seed {seed}: {problem}" for problem in world.problems]
        if world.thinned_until_us >= 0:
            self.thinned += 1
            if not world.scenario.forces:  # An operator who forces a level keeps it.
                self._add_recovery(world)
        self._count_gates(world)
        for query in world.scenario.queries:
            sql = query.sql.split(" FROM ")[0]
            self._add(seed, sql, world.answers[query.name])
            self._add(seed, f"thinned {sql}", world.thinned_answers[query.name])

    def _count_gates(self, world: World) -> None:
        """Count the gates at which the world judged its answers (`World.problems`)."""
        for answers in (world.answers, world.thinned_answers):
            EVALUATED.add(run=sum(map(_gates, answers.values())))

    def _add_recovery(self, world: World) -> None:
        until_s, load_s = world.thinned_until_us / 1e6, world.load_ends_us / 1e6
        rows = world.series.rows
        queued_s = max((row["at_s"] for row in rows if row["queue_bytes"]), default=0.0)
        self.slowest_s = max(self.slowest_s, until_s - max(load_s, queued_s))
        self.slowest_after_load_s = max(self.slowest_after_load_s, until_s - load_s)

    def _add(self, seed: int, sql: str, one: Answers) -> None:
        if one.checked:
            all_of_it = self.answers.setdefault(sql, Answers())
            all_of_it.intervals += one.intervals
            all_of_it.held += one.held
            all_of_it.wrong += one.wrong
            all_of_it.draws |= {(seed, *draw): found for draw, found in one.draws.items()}
            all_of_it.checked += one.checked
            all_of_it.confidence = min(one.confidence, all_of_it.confidence)

    def compare(self, seed: int, result: Result, again: Result) -> None:
        """Two runs of one seed."""
        self.replayed += 1
        if again.to_json() != result.to_json():
            self.wrong.append(f"seed {seed}: another run of it has other bytes")

    @property
    def thinned_intervals(self) -> int:
        """Intervals that were compared of answers given while they were thinned."""
        return sum(a.compared[0] for sql, a in self.answers.items() if sql.startswith("thinned"))

    def uncovered(self) -> list[str]:
        """Queries whose intervals held less often than honest ones would."""
        EVALUATED.add(run=sum(map(_gates, self.answers.values())))
        return [
            f"{sql}: {each.compared[1]} of {each.compared[0]} intervals held, {each.wrong} exact "
            "ones wrong"
            for sql, each in self.answers.items()
            if not each.covers(RUN_ALARM)
        ]


def _gates(answers: Answers) -> int:
    """Return how many gates `Answers.covers` evaluates."""
    return int(answers.intervals > 0) + int(bool(answers.draws))


def scenario_of(seed: int, seconds: float = 2.0) -> Scenario:
    """A world of small batches in which anything may happen."""
    rng = np.random.default_rng([seed, 77])
    start, stop = np.sort(rng.uniform(0.1, 0.9, 2)) * seconds
    shape = str(rng.choice(["steady", "poisson", "bursts", "flash", "diurnal", "worldcup98"]))
    arrivals = {
        "shape": shape,
        "rate": float(rng.uniform(200, 2_000)),
        "times": float(rng.uniform(2, 12)),
        "from_s": float(start),
        "for_s": max(0.1, float(stop - start)),
        "on_s": 0.2,
        "off_s": 0.4,
        "period_s": seconds,
    }
    group = {
        "count": int(rng.integers(1, 3)),
        "every_ms": 100.0,
        "arrivals": arrivals,
        "duplicates": float(rng.choice([0.0, 0.2])),
        "gaps": float(rng.choice([0.0, 0.2])),
        "disorder_s": float(rng.choice([0.0, 0.0, 0.3])),
        "slow_s": float(rng.choice([0.0, 0.0, 0.4])),
        "retry": str(rng.choice(["backoff", "greedy"])),
        "patience_s": float(rng.choice([0.3, 30.0])),
    }
    values: dict[str, Any] = {
        "title": f"seed {seed}",
        "seed": seed,
        "seconds": seconds,
        "stream": {
            "lateness_s": 0.1,
            "keys": 30,
            "skew": float(rng.uniform(0, 2)),
            "drift_s": float(rng.choice([0.0, 0.5])),
            "sigma": float(rng.choice([0.5, 2.0])),
        },
        "machine": {
            "scale": float(rng.choice([1.0, 1_000.0, 4_000.0])),
            "disk_bytes_per_s": "64GiB",
            "ingest_queue_bytes": "1MiB",
            "sample_rows": 64,
            "run_rows": int(rng.choice([500, 1 << 20])),
            "checkpoint_seconds": float(rng.choice([0.5, 10.0])),
            "restart_s": 0.1,
        },
        "costs": {"factor": {"q": float(rng.uniform(0.5, 10))}},
        "queries": [{"name": "q", "sql": _query(rng)}],
        "producers": [group],
    }
    if rng.random() < 0.3:
        crash: dict[str, Any] = {"at_s": float(rng.uniform(0, seconds))}
        if rng.random() < 0.7:
            crash["after_calls"] = int(rng.integers(0, 12))
        values["crashes"] = [crash]
    if rng.random() < 0.2:
        values["stalls"] = [{"at_s": float(start), "for_s": 0.3}]
    if rng.random() < 0.3:
        level = int(rng.integers(1, 5))
        values |= {"control": "none", "forces": [{"at_s": float(start), "level": level}]}
    if rng.random() < 0.25:
        policies = ["BLOCK", "DROP", "DROP LEAST value", "DROP OLDEST"]
        values["stream"]["on_overload"] = str(rng.choice(policies))
    if rng.random() < 0.3:
        group["helps"] = True
        values["machine"]["scale"] = (
            SLOWEST_SCALE  # Help is wanted only when thinning is not enough.
        )
    if rng.random() < 0.2:
        _divide(values, rng)
    if rng.random() < 0.2:
        group["thinning"] = "1/8"
        values["machine"]["scale"] = SLOWEST_SCALE
        # The way of these alone takes more time than there is: else help is hardly ever wanted.
        flood = {"rate": 300.0, "times": 20.0, "from_s": 0.1 * seconds, "for_s": 0.7 * seconds}
        arrivals |= flood | {"shape": "flash"}
    return Scenario.of(values)


def _divide(values: dict[str, Any], rng: np.random.Generator) -> None:
    """Two tenants, of whom the first sends what was to come, and the second some more."""
    first, query = values["producers"][0], values["queries"][0]
    first["tenant"] = "first"
    query["sql"] = query["sql"].replace("FROM requests", "FROM requests_of_first")
    arrivals = {"shape": "poisson", "rate": float(rng.uniform(100, 500))}
    second = {"name": "others", "tenant": "second", "every_ms": 100.0, "arrivals": arrivals}
    values["producers"].append(second)
    other = {"name": "r", "sql": _query(rng).replace("FROM requests", "FROM requests_of_second")}
    values["queries"].append(other)
    quota: dict[str, Any] = {"name": "first", "weight": float(rng.choice([0.5, 1.0]))}
    if rng.random() < 0.5:
        quota["rows_per_s"] = float(rng.uniform(100, 2_000))
    values["tenants"] = [quota, {"name": "second"}]


def _query(rng: np.random.Generator) -> str:
    group = str(rng.choice(GROUPS))
    key, by = (f"{group} AS g, ", f"GROUP BY {group}") if group else ("", "")
    return (
        f"SELECT {key}{rng.choice(QUERIES)} FROM requests "
        f"[RANGE INTERVAL '1' SECOND SLIDE INTERVAL '500' MILLISECOND] {rng.choice(WHERES)} {by} "
        "WITHIN 5 PERCENT"
    )


def look(first: int, count: int, seconds: float = 2.0) -> Found:
    """Run worlds, one per seed."""
    found = Found()
    for seed in range(first, first + count):
        world, result = run(scenario_of(seed, seconds), alarm=RUN_ALARM)
        found.add(seed, world)
        if seed % REPLAYED_EVERY == 0 and result.replays:
            found.compare(seed, result, run(scenario_of(seed, seconds), alarm=RUN_ALARM)[1])
    return found


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    found = look(first, count, *map(float, sys.argv[3:4]))
    print(
        f"{found.worlds:,} worlds of seeds from {first}: {found.tuples:,} tuples, "
        f"{found.thinned:,} worlds thinned, {found.crashed:,} crashed, {found.refused:,} refused, "
        f"{found.of_tenants:,} of two tenants; {found.merges:,} summaries for batches; "
        f"{found.left_out:,} thinned at the source; "
        f"{found.replayed:,} run twice; {found.thinned_intervals:,} intervals of thinned answers; "
        f"full precision after {found.slowest_s:g} s at most"
    )
    wrong = [*found.wrong, *found.uncovered()]
    for line, times in Counter(wrong).items():
        print(line, f"({times} times)" if times > 1 else "")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
