"""An engine in virtual time, on which work takes time, and a producer that does not wait."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.synopsis_plans.cpu_costs import costs_ns
from shedder.overload.controller import TICK_S
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import encode

SECOND = 1_000_000
START = 1_000 * SECOND
CREATE = """CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"""
QUERIES = {
    "wide": "SELECT COUNT(*) AS n, TOP(k, 5) AS t, QUANTILE(x, 0.9) AS q, SUM(x) AS s FROM s",
    "groups": "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM s GROUP BY g",
}
ROWS = 500


class Priced(VirtualEnvironment):
    """A virtual machine on which every synopsis takes its time."""

    slowness = 940.0  # Times what the model says that a synopsis takes.

    def __init__(self) -> None:
        super().__init__(1, START)
        self.ns = 0

    def monotonic_ns(self) -> int:
        return self.time_us * 1_000 + self.ns

    def monotonic_s(self) -> float:
        return self.monotonic_ns() / 1e9

    def cpu_timer(self, query, plan, *, grouped):
        costs = [costs_ns(part, grouped=grouped) for part in plan.parts]
        return PricedWatch(self, costs)


class PricedWatch(CpuTimer):
    call_ns = 0.0

    def __init__(self, machine, costs):
        super().__init__(len(costs), machine.monotonic_ns)
        self.machine = machine
        self.costs = costs

    def lap(self, part, tuples, level=0):
        self.machine.ns += int(self.machine.slowness * tuples * self.costs[part][level])
        super().lap(part, tuples, level)


def batch_of(number, at):
    """The batch of that number, all of whose tuples are of one moment."""
    rng = np.random.default_rng(number)
    return pa.record_batch(
        {
            "ts": pa.array(np.full(ROWS, at), pa.timestamp("us")),
            "k": rng.zipf(1.3, ROWS) % 1_000,
            "g": rng.choice(list("ab"), ROWS),
            "x": rng.lognormal(1, 1, ROWS),
        }
    )


class Flooded:
    """An engine in virtual time with standing queries, and a producer that does not wait."""

    def __init__(self, directory, machine=None, **settings):
        self.machine = machine or Priced()
        self.directory = directory
        self.settings = {"overload": "on"} | settings
        self.engine = Engine.open(directory, machine=self.machine, **self.settings)
        self.sent = []
        self.spacing_us = 1_000
        self.ends_s = np.inf  # The newest tick was to end then.
        self.declared = {}  # More arguments of `Engine.append` for each batch.
        if not self.engine.core.streams:
            self.engine.execute(CREATE)
            for name, text in QUERIES.items():
                self.engine.register(name, text)

    def send(self, batches=1):
        for _ in range(batches):
            table = batch_of(len(self.sent), START + len(self.sent) * self.spacing_us)
            batch = encode(table)
            self.engine.append("s", batch, producer="p", epoch=0, sequence=None, **self.declared)
            self.sent.append(table)
        self.machine.log.commit(self.machine.log.gather())

    def tick(self, batches=0):
        """100 ms: what comes, comes; what there is time for is applied; the controller looks."""
        self.ends_s = end = self.machine.monotonic_s() + TICK_S
        if batches:
            self.send(batches)
        while self.machine.monotonic_s() < end and self.machine.applier.waiting:
            self.machine.applier.step()
            if group := self.machine.log.gather():
                self.machine.log.commit(group)
        self.machine.ns += max(0, int((end - self.machine.monotonic_s()) * 1e9))
        for period_s, tick in self.machine.ticks:
            if period_s == TICK_S:
                tick()

    def killed_and_opened(self, *, checkpointed):
        """Another engine on what this one leaves; checkpointed: right before the kill."""
        if checkpointed:
            self.engine.core.executor.call(self.engine.checkpoints.now).result()
        self.engine.core.store.close()  # As a kill does: nothing is written any more.
        machine = VirtualEnvironment(2, self.machine.time_us)
        self.engine = Engine.open(self.directory, machine=machine, **self.settings)

    def levels(self, name):
        return self.engine.core.standing_query(name)[1].state.levels

    def rows(self, name):
        return self.engine.query(name).answer().rows()

    def flood(self, ticks=6):
        for _ in range(5):
            self.tick(1)
        left = 20 * ticks
        while left:
            # What is read as one may have lasted beyond a tick's end: they come at their rate.
            over_s = max(self.machine.monotonic_s() - self.ends_s, 0.0)
            due = min(left, round(20 * (1 + over_s / TICK_S)))
            for _ in range(due):
                self.send()
            left -= due
            self.tick()

    def facts(self, entity, name):
        """Of the control table."""
        table = self.engine.control().to_pylist()
        return {r["key"]: r["value"] for r in table if (r["entity"], r["name"]) == (entity, name)}


def strides(world):
    """How many tuples of the stream each step of the apply thread applies, until all are."""
    stream, found = world.engine.core.streams["s"], []
    while world.machine.applier.waiting is not None:
        before = stream.applied
        world.machine.applier.step()
        found.append(stream.applied - before)
    return [stride for stride in found if stride]


LOOKED = 10  # Ticks from one look at costs and rates to the next.


def run(world, ticks):
    for _ in range(ticks):
        world.tick(1)
