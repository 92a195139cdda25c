"""A server parses the SQL of a call once, and hands the statement on."""

from __future__ import annotations

from collections import Counter

import pytest

from shedder.errors import BadQuery
from tests.server.worlds import CREATE_TRADES, Front, connect

LARGE = " OR ".join(f"(key = {key})" for key in range(200))


class Parsing(Front):
    """An engine that counts the texts that it parses; `given` has what it is asked to run."""

    def __init__(self, engine):
        super().__init__(engine)
        self.texts, self.given = Counter(), []

    def parse(self, sql, params=None):
        self.texts[sql] += 1
        return self.engine.parse(sql, params)

    def execute(self, statement, params=None, **arguments):
        self.given.append(statement)
        return self.engine.execute(statement, params, **arguments)

    def register(self, name, statement, params=None, **arguments):
        self.given.append(statement)
        return self.engine.register(name, statement, params, **arguments)


@pytest.fixture
def front(engine):
    engine.execute(CREATE_TRADES)
    return Parsing(engine)


@pytest.mark.parametrize("where", ["key = 1", LARGE], ids=["small", "large"])
def test_questions_and_registrations_are_parsed_once(front, address, where):
    count = f"SELECT COUNT(*) AS n FROM trades WHERE {where}"
    average = f"SELECT AVG(key) AS a FROM trades WHERE {where} AND key > ?"
    texts = [count, f"EXPLAIN {count}", average]
    with connect(address) as client:
        for text in texts[:2]:
            client.execute(text)
        client.register("q", average, [7])
    assert front.texts == Counter(texts)
    assert [type(statement).__name__ for statement in front.given] == [
        "Select",
        "Explain",
        "Select",
    ]


def test_parameters_beside_a_parsed_statement_are_refused(engine):
    engine.execute(CREATE_TRADES)
    statement = engine.parse("SELECT COUNT(*) AS n FROM trades WHERE key = ?", [7])
    assert engine.execute(statement).rows()[0]["n"] == 0
    for call in (engine.execute, lambda *given: engine.register("q", *given)):
        with pytest.raises(BadQuery, match=r"\[8\]"):
            call(statement, [8])
