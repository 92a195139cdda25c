"""A replay of Linear Road: reports go in, notices and balances come out, as a client sees them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from examples.linear_road.queries import BALANCES, POSREPORTS, SPENT, STANDING, TOLLS

if TYPE_CHECKING:
    from shedder.engine.engine import Engine


@dataclass(slots=True)
class Reader:
    """Reads the rows of a standing query, each once.

    resume: the token behind the rows that were read.
    """

    db: Engine
    name: str
    resume: str = field(init=False)

    def __post_init__(self) -> None:
        resume = self.db.query(self.name).answer().resume
        assert resume is not None
        self.resume = resume

    def read(self) -> pa.Table:
        """Return the rows that the query has made of everything that was pushed."""
        query = self.db.query(self.name)
        answer = query.answer()
        tables = [answer.table.slice(0, 0)]
        if answer.resume != self.resume:
            for batch in query.subscribe(after=self.resume):
                tables.append(batch.table)
                if batch.resume == answer.resume:
                    break
        assert answer.resume is not None
        self.resume = answer.resume
        return pa.concat_tables(tables)


@dataclass(slots=True)
class Replay:
    """Expressway in a database. Tolls that are notified become the stream that balances read.

    notices, accidents, balances: all rows so far, a table for each step.
    latency_s: of each step, from the push to the last row of its answers.
    """

    db: Engine
    notices: list[pa.Table] = field(default_factory=list)
    accidents: list[pa.Table] = field(default_factory=list)
    balances: list[pa.Table] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    _readers: dict[str, Reader] = field(init=False)

    def __post_init__(self) -> None:
        for text in (POSREPORTS, TOLLS, BALANCES, SPENT):
            self.db.execute(text)
        for name, text in STANDING.items():
            self.db.register(name, text)
        self._readers = {name: Reader(self.db, name) for name in STANDING}

    def step(self, reports: pa.Table, requests: pa.Table, until_us: int) -> None:
        """Push what arrives before an instant, and read all answers to it."""
        began = time.perf_counter()
        self.db.push("posreports", reports)
        self.db.push("balances", requests.select(["ts", "vid", "qid"]))
        self.db.heartbeat("posreports", until_us)
        self.db.heartbeat("balances", until_us)
        tolls = self._readers["toll_notices"].read()
        self.notices.append(tolls)
        self.accidents.append(self._readers["accident_notices"].read())
        charged = {"ts": tolls["_ts"], "vid": tolls["vid"], "toll": tolls["toll"]}
        self.db.push("tolls", pa.table(charged))
        self.db.heartbeat("tolls", until_us)
        self.balances.append(self._readers["balance_answers"].read())
        self.latency_s.append(time.perf_counter() - began)
