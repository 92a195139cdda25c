"""Whatever is asked, and in any order: budget, quotas and promises hold, and all of it adds up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shedder.engine.apply.size_records import shrinks
from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import ShedderError
from tests.engine.query_worlds import START, reallocate, second
from tests.engine.supervised import Supervised
from tests.scale import scaled

TENANTS = ("acme", "bolt", "cog")
WINDOWS = (
    "[RANGE INTERVAL '8' SECOND SLIDE INTERVAL '1' SECOND]",
    "[RANGE INTERVAL '10' SECOND]",
    "[RANGE INTERVAL '60' SECOND SLIDE INTERVAL '5' SECOND]",
    "",
)
AGGREGATES = (
    "COUNT(DISTINCT k + {n}) AS d",
    "SELF_JOIN_SIZE(k + {n}) AS f",
    "JACCARD(k, v < 0.6, v > 0.4) AS j",
    "TOP(k + {n}, 10) AS t",
    "QUANTILE(v, 0.5) AS m",
    "SUM(v) AS t, COUNT(*) AS n",
    "COUNT(DISTINCT k + {n}) AS d, QUANTILE(v, 0.9) AS q",
    "JOIN_SIZE(k, v) AS j",
    "MAX(v) AS x",
)
TARGETS = ("", "WITHIN {n} PERCENT", "WITHIN {n} PERCENT ELSE FAIL", "WITHIN {n} PERCENT ELSE OMIT")
COMMANDS = (
    *["register"] * 6,
    "drop",
    "weigh",
    "rest",
    "budget",
    "quota",
    "feed",
    "reopen",
    "share",
)
MAY_BREAK = ("budget", "quota", "feed")  # Promises: there is less for all, or more groups.

Row = dict[str, Any]
Promise = tuple[str, str, str | None]


class Fed(Supervised):
    """A machine whose clock advances with event time, so that the streams' paces are fixed."""

    def __init__(self, world: CommandedWorld) -> None:
        super().__init__()
        self._world = world

    def monotonic_s(self) -> float:
        return float(self._world.seconds)


class CommandedWorld:
    """An engine of three tenants, and what was asked of it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.directory = directory
        self.seconds = 0
        self.open()
        for tenant in TENANTS:
            self.engine.execute(
                f"CREATE STREAM {tenant} (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts",
                caller=Caller(tenant),
            )
        self.queries: dict[str, str] = {}  # By name, whose it is.
        self.active: set[str] = set()
        self.promised: set[str] = set()
        self.quotas: dict[str, int] = {}
        self.done: Counter[str] = Counter()

    def open(self) -> None:
        self.machine = Fed(self)
        self.engine = Engine.open(
            self.directory, machine=self.machine, checkpoint_seconds=1e6, allocation_seconds=1e6
        )

    def one(self, names: Any) -> str:
        return str(self.rng.choice(sorted(names)))

    def text(self, tenant: str) -> str:
        number = self.rng.choice([1, 2, 5, 20])
        aggregate = str(self.rng.choice(AGGREGATES)).format(n=number)
        target = str(self.rng.choice(TARGETS)).format(n=number)
        weight = f"WEIGHT {self.rng.choice([0.01, 1.0, 1000.0])}"
        window = self.rng.choice(WINDOWS)
        if self.rng.random() < 0.2:
            grouped = f"SELECT k % 50 AS g, {aggregate} FROM {tenant} {window} GROUP BY g"
            return f"{grouped} {target} {weight}"
        return f"SELECT {aggregate} FROM {tenant} {window} {target} {weight}"

    def ask(self, command: str) -> None:
        getattr(self, command)()
        self.done[command] += 1

    def register(self) -> None:
        name, tenant = f"q{self.done['register']}", self.one(TENANTS)
        text = self.text(tenant)
        self.engine.register(name, text)
        self.queries[name] = tenant
        self.active.add(name)
        if "ELSE FAIL" in text:
            self.promised.add(name)

    def drop(self) -> None:
        name = self.one(self.queries)
        self.engine.drop_query(name)
        del self.queries[name]

    def weigh(self) -> None:
        self.engine.budgets.set_weight(
            self.one(self.queries), float(self.rng.choice([1e-3, 1, 50, 1e6]))
        )

    def rest(self) -> None:
        name = self.one(self.queries)
        self.engine.budgets.set_active(name, active=name not in self.active)
        self.active ^= {name}

    def budget(self) -> None:
        self.engine.budgets.set_synopsis_bytes(int(2 ** self.rng.uniform(16, 26)))

    def quota(self) -> None:
        tenant, size = self.one(TENANTS), int(2 ** self.rng.uniform(16, 25))
        self.engine.quotas.set_quota(tenant, "synopsis_bytes", str(size))
        self.quotas[tenant] = size

    def feed(self) -> None:
        for tenant in TENANTS:
            self.engine.push(tenant, second(self.seconds))
        self.seconds += 1

    def reopen(self) -> None:
        before = self.settled()
        self.engine.close()
        self.open()
        after = self.settled()
        assert said(after) == said(before)

    def share(self) -> None:
        reallocate(self.engine)
        taken = self.taken(self.settled())
        for name, size in taken.items():
            assert int(self.engine.query(name).granted["bytes"]) == size, name

    def settled(self) -> list[Row]:
        """What EXPLAIN ALLOCATION says when all that was decided is in force."""
        self.machine.settle("shedder-allocation")  # The rebalancer has done all posted work.
        while self.engine.core.executor.call(lambda: shrinks(self.engine.core)).result():
            pass
        for tenant in TENANTS:
            self.engine.heartbeat(tenant, (START + self.seconds) * 1_000_000)
        return self.engine.execute("EXPLAIN ALLOCATION").rows()

    def taken(self, rows: list[Row]) -> Counter[str]:
        taken: Counter[str] = Counter()
        for row in rows:
            if row["query"]:
                taken[row["query"]] += row["size_bytes"]
        return taken

    def kept(self, rows: list[Row]) -> set[Promise]:
        """The promises to queries that do not rest, as far as they are kept by prediction."""
        of = [row for row in rows if row["query"] in self.promised & self.active and row["target"]]
        return {
            (row["query"], row["synopsis"].split(" ")[0], row["answers"])
            for row in of
            if row["expected_error"] <= row["target"] * (1 + 1e-9)
        }

    def check(self, rows: list[Row]) -> None:
        assert sum(row["size_bytes"] for row in rows) == self.engine.core.synopsis_bytes
        (free,) = [row["size_bytes"] for row in rows if row["query"] is None]
        assert free >= 0
        taken = self.taken(rows)
        assert set(taken) == set(self.queries)
        for tenant, most in self.quotas.items():
            assert sum(taken[name] for name in taken if self.queries[name] == tenant) <= most


def said(rows: list[Row]) -> str:
    """What may not change by a restart, a line each."""
    columns = ("query", "synopsis", "size_bytes", "weight", "thinning", "target")
    return "\n".join(sorted(str([row[column] for column in columns]) for row in rows))


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (1, 30),
        *(pytest.param(seed, 80, marks=pytest.mark.slow) for seed in range(2, scaled(4, 20))),
    ],
)
def test_whatever_is_asked_it_adds_up(tmp_path: Path, seed: int, steps: int) -> None:
    world = CommandedWorld(tmp_path, seed)
    refused: Counter[str] = Counter()
    rows = world.settled()
    try:
        for _ in range(steps):
            before = world.kept(rows)
            able = COMMANDS if world.queries else COMMANDS[:6]
            command = str(world.rng.choice(able))
            active = set(world.active)
            try:
                world.ask(command)
            except ShedderError as error:
                refused[type(error).__name__] += 1
            rows = world.settled()
            world.check(rows)
            if command not in MAY_BREAK:
                same = {each for each in before if each[0] in world.queries}
                changed = active ^ world.active
                assert {each for each in same if each[0] not in changed} <= world.kept(rows), (
                    command
                )
    finally:
        world.engine.close()
    assert set(refused) <= {"BudgetExceeded", "PrecisionUnavailable"}
    assert world.done["register"] > steps // 6
