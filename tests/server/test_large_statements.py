"""Large statements of many clients are parsed and explained one at a time by a server."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from shedder.cql.statements.statement import Explain
from shedder.errors import BadQuery, DeadlineExceeded
from tests.server.worlds import CREATE_TRADES, Front, connect

CALLS = 6
LARGE = " OR ".join(f"(key = {key})" for key in range(200))
DENSE = f"key IN ({','.join(['1'] * 800)})"  # Below 2,048 characters.


class Counting(Front):
    """An engine that counts how many statements are parsed and explained at once.

    begun: set when a large statement is parsed; it goes on when `gate` is set.
    """

    def __init__(self, engine):
        super().__init__(engine)
        self.now, self.most = Counter(), Counter()
        self.texts = Counter()
        self.begun, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    @contextmanager
    def _counted(self, what):
        with self._lock:
            self.now[what] += 1
            self.most[what] = max(self.most[what], self.now[what])
        try:
            yield
        finally:
            with self._lock:
                self.now[what] -= 1

    def parse(self, sql, params=None):
        if len(sql) < 1_000:
            return self.engine.parse(sql, params)
        with self._counted("large"):
            self.texts[sql] += 1
            self.begun.set()
            self.gate.wait()
            return self.engine.parse(sql, params)

    def execute(self, statement, **arguments):
        with self._counted("large" if isinstance(statement, Explain) else "small"):
            return self.engine.execute(statement, **arguments)


@pytest.fixture
def front(engine):
    engine.execute(CREATE_TRADES)
    return Counting(engine)


@pytest.mark.slow
@pytest.mark.parametrize("where", [LARGE, DENSE], ids=["long", "dense"])
def test_large_statements_of_many_clients_are_parsed_and_explained_one_at_a_time(
    front, address, where
):
    def explain(number):
        with connect(address) as client:
            return client.execute(f"EXPLAIN SELECT COUNT(*) AS n{number} FROM trades WHERE {where}")

    with ThreadPoolExecutor(CALLS) as pool:
        plans = list(pool.map(explain, range(CALLS)))
    assert all(plan.table["plan"] for plan in plans)
    assert list(front.texts.values()) == [1] * CALLS
    assert front.most["large"] == 1


@pytest.mark.slow
def test_a_small_statement_does_not_wait_for_large_ones(front, address):
    front.gate.clear()
    with connect(address) as one, connect(address) as other, ThreadPoolExecutor(1) as pool:
        large = pool.submit(one.execute, f"SELECT COUNT(*) AS n FROM trades WHERE {LARGE}")
        assert front.begun.wait(60)
        assert other.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 0
        assert not large.done()
        front.gate.set()
        assert large.result().rows()[0]["n"] == 0


@pytest.mark.slow
def test_the_time_in_the_queue_counts_towards_the_timeout(front, address):
    front.gate.clear()
    with connect(address) as one, connect(address) as other, ThreadPoolExecutor(1) as pool:
        large = pool.submit(one.execute, f"SELECT COUNT(*) AS n FROM trades WHERE {LARGE}")
        assert front.begun.wait(60)
        with pytest.raises(DeadlineExceeded):
            other.execute(f"SELECT SUM(key) AS s FROM trades WHERE {LARGE}", timeout_s=0.2)
        front.gate.set()
        large.result()


def test_a_large_text_that_is_no_statement_is_refused_by_name(address):
    with connect(address) as client:
        with pytest.raises(BadQuery, match="line 1"):
            client.execute(f"SELECT COUNT(* FROM trades WHERE {LARGE}")
        with pytest.raises(BadQuery, match="line 1"):
            client.register("q", f"SELECT COUNT(* FROM trades WHERE {LARGE}")
        assert client.register("q", f"SELECT COUNT(*) AS n FROM trades WHERE {LARGE}").answer()
