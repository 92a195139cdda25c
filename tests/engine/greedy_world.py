"""One engine with a modest and a greedy tenant, in virtual time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.runtime.caller import Caller
from shedder.errors import RateExceeded
from shedder.streams.batches import encode
from tests.engine.flooded import SECOND, START, Priced

ROWS = 200
TICK_US = SECOND // 10
TICKS = 150
QUOTA = 10 * ROWS  # Rows/s: a batch each tick.
CREATE = "CREATE STREAM {} (ts TIMESTAMP, k BIGINT, x DOUBLE) TIMESTAMP BY ts"
QUERY = "SELECT COUNT(*) AS n, TOP(k, 5) AS t, QUANTILE(x, 0.9) AS q, SUM(x) AS s FROM {}"
NAMES = ("modest", "greedy")


class Shared:
    """One engine of two tenants; a batch of the modest one each tick, and some of the other."""

    def __init__(self, directory, *, machine=None, ticks=TICKS):
        self.machine = machine or Priced()
        self.ticks = ticks
        self.engine = Engine.open(directory, machine=self.machine, overload="on")
        for name in NAMES:
            self.engine.execute(CREATE.format(name), caller=Caller(name))
            self.engine.register(f"of_{name}", QUERY.format(name), caller=Caller(name))
        self.rng = np.random.default_rng(1)
        self.refused = dict.fromkeys(NAMES, 0)

    def send(self, name):
        now_us = START + self.machine.ns // 1_000
        table = pa.record_batch(
            {
                "ts": pa.array(np.full(ROWS, now_us), pa.timestamp("us")),
                "k": self.rng.zipf(1.3, ROWS) % 1_000,
                "x": self.rng.lognormal(1, 1, ROWS),
            }
        )
        try:
            self.engine.append(name, encode(table), producer="", epoch=0, sequence=None, rows=ROWS)
        except RateExceeded:
            self.refused[name] += 1

    def work(self, until_s):
        """Apply what waits, until then; yields after each piece."""
        while self.machine.monotonic_s() < until_s and self.machine.applier.waiting:
            self.machine.applier.step()
            if group := self.machine.log.gather():
                self.machine.log.commit(group)
            yield
        self.machine.ns += max(0, int((until_s - self.machine.monotonic_s()) * 1e9))

    def waits_s(self, times):
        """How long each of the modest tenant's batches waits to be applied."""
        stream, sent, waits = self.engine.core.stream("modest"), [], []
        for tick in range(self.ticks):
            began_s = START / SECOND + (tick + 1) * TICK_US / SECOND
            for _ in range(times):
                self.send("greedy")
            self.send("modest")
            sent.append(self.machine.monotonic_s())
            self.machine.log.commit(self.machine.log.gather())
            for _ in self.work(began_s):
                while len(waits) < stream.position // ROWS:
                    waits.append(self.machine.monotonic_s() - sent[len(waits)])
            for period_s, tell in self.machine.ticks:
                if period_s == TICK_US / SECOND:
                    tell()
        assert len(waits) >= self.ticks - 2
        return np.array(waits)
