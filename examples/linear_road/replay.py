"""A replay of Linear Road: reports go in, notices and balances come out, as a client sees them."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class RoadAnswers:
    """Rows of the standing queries, with `_ts` and `_sign`."""

    tolls: pa.Table
    accidents: pa.Table
    balances: pa.Table


@dataclass(slots=True)
class Replay:
    """Expressway in a database. Tolls that are notified become the stream that balances read."""

    db: Engine
    _readers: dict[str, Reader] = field(init=False)

    def __post_init__(self) -> None:
        for text in (POSREPORTS, TOLLS, BALANCES, SPENT):
            self.db.execute(text)
        for name, text in STANDING.items():
            self.db.register(name, text)
        self._readers = {name: Reader(self.db, name) for name in STANDING}

    def step(self, reports: pa.Table, requests: pa.Table, until_us: int) -> RoadAnswers:
        """Push what arrives before an instant, and return all answers to it."""
        self.report(reports)
        return self.answer(requests, until_us)

    def report(self, reports: pa.Table) -> None:
        """Push reports. One-time questions see them from then on."""
        self.db.push("posreports", reports)

    def answer(self, requests: pa.Table, until_us: int) -> RoadAnswers:
        """Push requests, and return all answers to what arrives before an instant."""
        self.db.push("balances", requests.select(["ts", "vid", "qid"]))
        self.db.heartbeat("posreports", until_us)
        self.db.heartbeat("balances", until_us)
        tolls = self._readers["toll_notices"].read()
        accidents = self._readers["accident_notices"].read()
        charged = {"ts": tolls["_ts"], "vid": tolls["vid"], "toll": tolls["toll"]}
        self.db.push("tolls", pa.table(charged))
        self.db.heartbeat("tolls", until_us)
        return RoadAnswers(tolls, accidents, self._readers["balance_answers"].read())
