"""Standing queries of the papers on CQL, PSoup, Golab and streaming tables, against SQL by hand.

The names are those of tests/cql/test_paper_queries.py, where the same queries are asked once.
Tuples are at whole seconds, so a relation changes behind a second alone. What enters and leaves is
the difference of the relations of two seconds (the laws of ISTREAM and DSTREAM). START_US is 22:13
on the 14th of November 2023.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import START_US, Subscriber
from tests.scale import scaled
from tests.seeds import seed

SECOND = 1_000_000
Row = tuple[object, ...]
PARTS = "SELECT a, b FROM {} WHERE sec >= {{e}} - {} AND sec < {{e}}"

# Times in the SQL by hand are seconds: `sec` is a tuple's, {e} the instant of the answer.
RELATIONS = {
    "Q3": (
        (
            "SELECT COUNT(*) AS n FROM requests s [PARTITION BY s.client_id ROWS 2 PRECEDING "
            "WHERE s.domain = 'a.edu'] WHERE s.url LIKE '/x%'"
        ),
        (
            "SELECT count(*) FROM (SELECT *, row_number() OVER (PARTITION BY client_id "
            "ORDER BY sec DESC, place DESC) AS n FROM requests WHERE sec < {e} "
            "AND domain = 'a.edu') WHERE n <= 2 AND url LIKE '/x%'"
        ),
    ),
    "Q3, of a subquery": (
        (
            "SELECT t.client_id, t.url FROM (SELECT client_id, url FROM requests "
            "WHERE domain <> 'b.com') t [PARTITION BY client_id ROWS 2 WHERE url LIKE '/x%']"
        ),
        (
            "SELECT client_id, url FROM (SELECT *, row_number() OVER (PARTITION BY client_id "
            "ORDER BY sec DESC, place DESC) AS n FROM requests WHERE sec < {e} "
            "AND domain <> 'b.com' AND url LIKE '/x%') WHERE n <= 2"
        ),
    ),
    "Q6": (
        (
            "SELECT r.a, r.b, s.b AS other FROM r [RANGE 8 SECONDS], s [RANGE 5 SECONDS] "
            "WHERE r.a = s.a AND r.b > 1"
        ),
        (
            "SELECT r.a, r.b, s.b FROM r, s WHERE r.a = s.a AND r.b > 1 "
            "AND r.sec BETWEEN {e} - 8 AND {e} - 1 AND s.sec BETWEEN {e} - 5 AND {e} - 1"
        ),
    ),
    "Q6, three streams": (
        (
            "SELECT r.b, s.b AS x, t.b AS y FROM r [RANGE 8 SECONDS], s [RANGE 5 SECONDS], "
            "t [RANGE 5 SECONDS] WHERE r.a = s.a AND s.a = t.a"
        ),
        (
            "SELECT r.b, s.b, t.b FROM r, s, t WHERE r.a = s.a AND s.a = t.a AND r.sec >= {e} - 8 "
            "AND least(s.sec, t.sec) >= {e} - 5 AND greatest(r.sec, s.sec, t.sec) < {e}"
        ),
    ),
    "Q7": (
        (
            "SELECT AVG(f.ts - o.ts) AS delay FROM r o [RANGE 8 SECONDS], s f [RANGE 8 SECONDS] "
            "WHERE o.a = f.a AND o.b = f.b"
        ),
        (
            "SELECT avg((f.sec - o.sec) * 1000000) FROM r o, s f WHERE o.a = f.a AND o.b = f.b "
            "AND least(o.sec, f.sec) >= {e} - 8 AND greatest(f.sec, o.sec) < {e}"
        ),
    ),
    "Q8": (
        "SELECT r.a, s.b FROM r [RANGE 6 SECONDS], s [RANGE 6 SECONDS] WHERE r.b = s.b",
        (
            "SELECT r.a, s.b FROM r, s WHERE r.b = s.b AND least(r.sec, s.sec) >= {e} - 6 "
            "AND greatest(r.sec, s.sec) < {e}"
        ),
    ),
    "Q10": (
        "SELECT a, b FROM r [RANGE 6 SECONDS] WHERE a < 3 AND b > 0",
        f"{PARTS.format('r', 6)} AND a < 3 AND b > 0",
    ),
    "Q12": (
        (
            "SELECT r.a, s.b FROM r [RANGE 5 SECONDS], s [RANGE 3 SECONDS] "
            "WHERE r.a < 3 AND r.a > s.b AND s.b > 0"
        ),
        (
            "SELECT r.a, s.b FROM r, s WHERE r.a < 3 AND r.a > s.b AND s.b > 0 "
            "AND r.sec >= {e} - 5 AND s.sec >= {e} - 3 AND greatest(r.sec, s.sec) < {e}"
        ),
    ),
    "Q14": (
        "SELECT url FROM requests [RANGE 6 SECONDS] WHERE client_id = 1 AND domain = 'a.edu'",
        (
            "SELECT url FROM requests WHERE sec >= {e} - 6 AND sec < {e} AND client_id = 1 "
            "AND domain = 'a.edu'"
        ),
    ),
    "Q20": (
        "SELECT MAX(s.a) AS m FROM s [RANGE 6 SECONDS], t [RANGE 6 SECONDS] WHERE s.b = t.b",
        (
            "SELECT max(s.a) FROM s, t WHERE s.b = t.b AND least(s.sec, t.sec) >= {e} - 6 "
            "AND greatest(s.sec, t.sec) < {e}"
        ),
    ),
    "Q22": (
        (
            "SELECT a, b FROM r [RANGE 9 SECONDS] m WHERE NOT EXISTS "
            "(SELECT * FROM s [RANGE 4 SECONDS] WHERE s.a = m.a)"
        ),
        (
            f"{PARTS.format('r', 9)} AND NOT EXISTS "
            f"(FROM ({PARTS.format('s', 4)}) x WHERE x.a = r.a)"
        ),
    ),
    "Q23": (
        "SELECT a FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS] WHERE b = 3",
        "SELECT a FROM r WHERE sec >= {e} // 4 * 4 - 4 AND sec < {e} // 4 * 4 AND b = 3",
    ),
    "Q24": (
        (
            "SELECT DISTINCT s.a FROM s [RANGE 7 SECONDS], t [RANGE 5 SECONDS] "
            "WHERE s.b < t.b AND s.a > 0 AND s.a < 3"
        ),
        (
            f"SELECT DISTINCT a FROM ({PARTS.format('s', 7)}) WHERE a IN (1, 2) "
            f"AND b < (SELECT max(b) FROM ({PARTS.format('t', 5)}))"
        ),
    ),
    "Q28": (
        (
            "SELECT r.a, s.b FROM r [RANGE 6 SECONDS], s [RANGE 6 SECONDS] WHERE r.a = s.a "
            "AND NOT EXISTS (SELECT * FROM t [RANGE 3 SECONDS] WHERE t.a = r.a)"
        ),
        (
            f"SELECT r.a, s.b FROM ({PARTS.format('r', 6)}) r JOIN ({PARTS.format('s', 6)}) s "
            f"ON r.a = s.a ANTI JOIN ({PARTS.format('t', 3)}) t ON t.a = r.a"
        ),
    ),
    "Q29": (
        "SELECT DISTINCT a, b FROM r [ROWS 6]",
        (
            "SELECT DISTINCT a, b FROM (SELECT * FROM r WHERE sec < {e} "
            "ORDER BY sec DESC, place DESC LIMIT 6)"
        ),
    ),
    "Q30": (
        (
            "SELECT w.b FROM r w [RANGE 9 SECONDS], s x [RANGE 8 SECONDS], t y [RANGE 7 SECONDS], "
            "r z [RANGE 3 SECONDS] WHERE w.a = x.a AND x.a = y.a AND y.a = z.a"
        ),
        (
            "SELECT w.b FROM r w, s x, t y, r z WHERE w.a = x.a AND x.a = y.a AND y.a = z.a "
            "AND w.sec >= {e} - 9 AND x.sec >= {e} - 8 AND y.sec >= {e} - 7 AND z.sec >= {e} - 3 "
            "AND greatest(w.sec, x.sec, y.sec, z.sec) < {e}"
        ),
    ),
    "Q36": (
        "SELECT COUNT(*) AS n FROM r [RANGE 7 SECONDS], s [RANGE 8 SECONDS] WHERE r.a = s.a",
        (
            "SELECT coalesce(sum(n * m), 0)::BIGINT FROM "
            "(SELECT a, count(*) n FROM r WHERE sec >= {e} - 7 AND sec < {e} GROUP BY a) JOIN "
            "(SELECT a, count(*) m FROM s WHERE sec >= {e} - 8 AND sec < {e} GROUP BY a) USING (a)"
        ),
    ),
    "Q37": (
        "SELECT a, b FROM r [WINDOW a ROWS 1]",
        (
            "SELECT last(a ORDER BY sec, place), last(b ORDER BY sec, place) FROM r "
            "WHERE sec < {e} GROUP BY a"
        ),
    ),
    "Q38": (
        "SELECT client_id FROM requests [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE domain = 'b.com'",
        (
            "SELECT client_id FROM requests WHERE domain = 'b.com' AND sec < {e} - {e} % 2 "
            "AND sec >= {e} - {e} % 2 - 4"
        ),
    ),
    "Q40": (
        (
            "SELECT p1.a, p1.b FROM r [PARTITION BY a ROWS 3] p1, r [PARTITION BY a ROWS 3] p2, "
            "r [PARTITION BY a ROWS 3] p3 WHERE p1.a = p2.a AND p2.a = p3.a AND p2 = PREV(p1) "
            "AND p3 = PREV(p2) AND p1.b = p2.b AND p2.b = p3.b"
        ),
        (
            "SELECT any_value(a), any_value(b) FROM (SELECT *, row_number() OVER (PARTITION BY a "
            "ORDER BY sec DESC, place DESC) AS n FROM r WHERE sec < {e}) "
            "WHERE n <= 3 AND a IS NOT NULL GROUP BY a HAVING count(b) = 3 AND min(b) = max(b)"
        ),
    ),
    "Q42": (
        (
            "SELECT p1.a, p1.b, p2.b AS before FROM r [PARTITION BY a ROWS 2] p1, "
            "r [PARTITION BY a ROWS 2] p2 WHERE p1.a = p2.a AND p2 = PREV(p1) AND p1.b <> p2.b"
        ),
        (
            "SELECT a, b, before FROM (SELECT *, lag(b) OVER (PARTITION BY a ORDER BY sec, place) "
            "AS before, row_number() OVER (PARTITION BY a ORDER BY sec DESC, place DESC) AS n "
            "FROM r WHERE sec < {e}) WHERE n = 1 AND a IS NOT NULL AND b <> before"
        ),
    ),
    "Q45": (
        (
            "SELECT s.type, COUNT(*) AS cnt FROM requests q [RANGE 6 SECONDS SLIDE 3 SECONDS], "
            "domains s WHERE q.domain = s.domain GROUP BY s.type HAVING cnt > 1"
        ),
        (
            "SELECT type, count(*) FROM requests JOIN domains USING (domain) "
            "WHERE sec >= {e} // 3 * 3 - 6 AND sec < {e} // 3 * 3 GROUP BY type HAVING count(*) > 1"
        ),
    ),
}
# ISTREAM of a relation; with ISTREAM by default, its tuples have no window.
STREAMS = {
    "Q2": (
        "SELECT ISTREAM(COUNT(*) AS n) FROM requests s [RANGE 5 SECONDS] WHERE s.domain = 'a.edu'",
        "SELECT count(*) FROM requests WHERE domain = 'a.edu' AND sec >= {e} - 5 AND sec < {e}",
    ),
    "Q4": (
        (
            "SELECT t.url FROM (SELECT client_id, url FROM requests s, domains r WHERE s.domain = "
            "r.domain AND r.type = 'commerce') t WHERE t.client_id BETWEEN 1 AND 2"
        ),
        (
            "SELECT url FROM requests JOIN domains USING (domain) "
            "WHERE type = 'commerce' AND client_id IN (1, 2) AND sec < {e}"
        ),
    ),
    "Q5": (
        "SELECT client_id, domain, url FROM requests",
        "SELECT client_id, domain, url FROM requests WHERE sec < {e}",
    ),
    "Q9": (
        "SELECT ISTREAM(r.b, MAX(r.a) AS m) FROM r [RANGE 6 SECONDS SLIDE 4 SECONDS] GROUP BY r.b",
        "SELECT b, max(a) FROM r WHERE sec >= {e} // 4 * 4 - 6 AND sec < {e} // 4 * 4 GROUP BY b",
    ),
    "Q11": (
        "SELECT a, b FROM r WHERE a <= 4 AND b >= 2",
        "SELECT a, b FROM r WHERE a <= 4 AND b >= 2 AND sec < {e}",
    ),
    "Q13": (
        "SELECT a, b FROM r WHERE a <> b + 1 AND a >= 2",
        "SELECT a, b FROM r WHERE a <> b + 1 AND a >= 2 AND sec < {e}",
    ),
    "Q16": (
        (
            "SELECT ISTREAM(COUNT(*) AS n) FROM r [FROM TIMESTAMP '2023-11-14 22:13:05' "
            "SLIDE 4 SECONDS] WHERE a = 1"
        ),
        "SELECT count(*) FROM r WHERE sec >= 5 AND sec < {e} // 4 * 4 AND a = 1",
    ),
    "Q18": (
        "SELECT ISTREAM(a, AVG(b) AS size) FROM r [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY a",
        ("SELECT a, avg(b) FROM r WHERE sec >= {e} // 4 * 4 - 4 AND sec < {e} // 4 * 4 GROUP BY a"),
    ),
    "Q19": (
        "SELECT ISTREAM(MAX(a) AS m) FROM s [RANGE 3 SECONDS]",
        "SELECT max(a) FROM s WHERE sec >= {e} - 3 AND sec < {e}",
    ),
    "Q41": (
        (
            "SELECT ISTREAM(domain, COUNT(*) AS cnt, AVG(client_id) AS mean) FROM requests "
            "[RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY domain"
        ),
        (
            "SELECT domain, count(*), avg(client_id) FROM requests WHERE sec >= {e} // 2 * 2 - 2 "
            "AND sec < {e} // 2 * 2 GROUP BY domain"
        ),
    ),
}
# RSTREAM: the whole relation at each slide.
WHOLE = {
    "Q21": (
        (
            "SELECT RSTREAM(r.a, s.b) FROM r [RANGE 4 SECONDS SLIDE 2 SECONDS], "
            "s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE r.a = s.a"
        ),
        (
            "SELECT r.a, s.b FROM r, s WHERE r.a = s.a AND least(r.sec, s.sec) >= {e} - 4 "
            "AND greatest(r.sec, s.sec) < {e}"
        ),
        2,
    ),
}
CREATED = (
    *(
        f"CREATE STREAM {name} (ts TIMESTAMP, a BIGINT, b BIGINT) TIMESTAMP BY ts"
        for name in ("r", "s", "t")
    ),
    (
        "CREATE STREAM requests (ts TIMESTAMP, client_id BIGINT, domain VARCHAR, url VARCHAR) "
        "TIMESTAMP BY ts"
    ),
    "CREATE TABLE domains (domain VARCHAR PRIMARY KEY, type VARCHAR)",
    "INSERT INTO domains VALUES ('a.edu', 'school'), ('b.com', 'commerce')",
)


class World:
    """An engine with all queries, and the same tuples in DuckDB."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self._directory = directory
        self._dice = dice
        self._at = 0
        self.db = Engine.open(directory)
        for text in CREATED:
            self.db.execute(text)
        self.truth = duckdb.connect()
        self.truth.execute("CREATE TABLE domains (domain VARCHAR, type VARCHAR)")
        self.truth.execute("INSERT INTO domains VALUES ('a.edu', 'school'), ('b.com', 'commerce')")
        for name in ("r", "s", "t"):
            self.truth.execute(
                f"CREATE TABLE {name} (a BIGINT, b BIGINT, sec BIGINT, place BIGINT)"
            )
        self.truth.execute(
            "CREATE TABLE requests (client_id BIGINT, domain VARCHAR, url VARCHAR, sec BIGINT, "
            "place BIGINT)"
        )
        self.readers: dict[str, Subscriber] = {}

    def register(self, name: str, text: str) -> None:
        self.db.register(name, text)
        self.readers[name] = Subscriber(name)
        self.readers[name].begin(self.db)

    def second(self, sec: int) -> None:
        """Push the tuples of a second, and say that it is over."""
        for name in ("r", "s", "t", "requests"):
            rows = [self._drawn(name) for _ in range(self._dice.randrange(4))]
            for row in rows:
                marks = ", ".join("?" * (len(row) + 2))
                self._at += 1
                self.truth.execute(f"INSERT INTO {name} VALUES ({marks})", [*row, sec, self._at])
            columns = ("a", "b") if name != "requests" else ("client_id", "domain", "url")
            if rows:
                arrays = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
                times = pa.array([START_US + sec * SECOND] * len(rows), pa.timestamp("us"))
                schema = self.db.execute(f"SELECT * FROM {name} LIMIT 0").table.schema
                self.db.push(name, pa.table({"ts": times, **arrays}, schema=schema))
            self.db.heartbeat(name, START_US + (sec + 1) * SECOND)

    def _drawn(self, name: str) -> Row:
        if name != "requests":
            return tuple(self._dice.choice((0, 1, 2, 3, None)) for _ in range(2))
        domain = self._dice.choice(("a.edu", "b.com", "c.org", None))
        return (self._dice.choice((1, 2, 3, None)), domain, self._dice.choice(("/x", "/xy", "/z")))

    def by_hand(self, text: str, e: int) -> Counter[Row]:
        return Counter(self.truth.execute(text.format(e=e)).fetchall())

    def restart(self) -> None:
        self.db.close()
        self.db = Engine.open(self._directory)

    def got(self, name: str, sign: int) -> Counter[Row]:
        """The rows that a query has sent with a sign."""
        self.readers[name].read(self.db)
        return Counter(row[:-2] for row in self.readers[name].got if row[-1] == sign)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(scaled(1, 8)))
def test_standing_query_of_the_papers_has_the_rows_of_sql_by_hand(number, tmp_path):
    """As of each second; there is a restart among them."""
    dice = random.Random(seed("standing papers", number))
    world = World(tmp_path / "data", dice)
    every = {**RELATIONS, **STREAMS, **{name: case[:2] for name, case in WHOLE.items()}}
    for name, (cql, _) in every.items():
        world.register(name, cql)
    then = {name: Counter[Row]() for name in every}
    entered, left, whole = ({name: Counter[Row]() for name in every} for _ in range(3))
    end = scaled(12, 30)
    for e in range(end):  # As of 0 there are no tuples, and an aggregate of all rows has one row.
        if e:
            world.second(e - 1)
        if e == end // 2:
            world.restart()
        for name, (_, by_hand) in every.items():
            now = world.by_hand(by_hand, e)
            entered[name] += now - then[name]
            left[name] += then[name] - now
            then[name] = now
            if name in WHOLE and e and e % WHOLE[name][2] == 0:
                whole[name] += now
            if name in RELATIONS and e:
                table = world.db.query(name).answer().table
                found = Counter(zip(*(it.to_pylist() for it in table.columns), strict=True))
                assert found == now, (name, e)
    for name in every:
        expected = whole[name] if name in WHOLE else entered[name]
        assert world.got(name, 1) == expected, name
        if world.got(name, -1):
            assert world.got(name, -1) == left[name], name
    world.db.close()
