"""Queries of the papers on CQL, PSoup and streaming tables, against DuckDB SQL by hand.

The names Q1 to Q45 are those of the list from which these queries come. Left out are standing
streams (Q2, Q21, Q23), windows of results (Q25 to Q27), user-defined lists (Q43) and preferences
(Q46 to Q48); queries that differ only in constants stand once.
"""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

from shedder.cql.expressions.column_types import ColumnType
from tests.cql.relations import SECOND, Relations, stream, table
from tests.scale import scaled
from tests.seeds import seed

L, V = ColumnType.BIGINT, ColumnType.VARCHAR

# Times in the SQL by hand are seconds: `sec` is a tuple's, {e} the instant of the answer.
QUERIES = {
    "Q1": (
        "SELECT COUNT(*) FROM requests s [RANGE 9 SECONDS WHERE domain = 'a.edu']",
        "SELECT count(*) FROM requests WHERE sec >= {e} - 9 AND sec < {e} AND domain = 'a.edu'",
    ),
    "Q3": (
        (
            "SELECT COUNT(*) FROM requests s [PARTITION BY s.client_id ROWS 2 PRECEDING "
            "WHERE s.domain = 'a.edu'] WHERE s.url LIKE '/x%'"
        ),
        (
            "SELECT count(*) FROM (SELECT *, row_number() OVER (PARTITION BY client_id "
            "ORDER BY sec DESC, __position DESC) AS n FROM requests WHERE sec < {e} "
            "AND domain = 'a.edu') WHERE n <= 2 AND url LIKE '/x%'"
        ),
    ),
    "Q4": (
        (
            "SELECT t.url FROM (SELECT client_id, url FROM requests s, domains r "
            "WHERE s.domain = r.domain AND r.type = 'commerce') t WHERE t.client_id BETWEEN 1 AND 2"
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
    "Q6": (
        (
            "SELECT r.a, r.b, s.b FROM r [RANGE 8 SECONDS], s [RANGE 5 SECONDS] "
            "WHERE r.a = s.a AND r.b > 1"
        ),
        (
            "SELECT r.a, r.b, s.b FROM r, s WHERE r.a = s.a AND r.b > 1 "
            "AND r.sec BETWEEN {e} - 8 AND {e} - 1 AND s.sec BETWEEN {e} - 5 AND {e} - 1"
        ),
    ),
    "Q6, three streams": (
        "SELECT r.b, s.b, t.b FROM r, s, t WHERE r.a = s.a AND s.a = t.a",
        (
            "SELECT r.b, s.b, t.b FROM r, s, t WHERE r.a = s.a AND s.a = t.a "
            "AND r.sec < {e} AND s.sec < {e} AND t.sec < {e}"
        ),
    ),
    "Q7": (
        "SELECT AVG(f.ts - o.ts) FROM r o, s f WHERE o.a = f.a AND o.b = f.b",
        (
            "SELECT avg((f.sec - o.sec) * 1000000) FROM r o, s f WHERE o.a = f.a AND o.b = f.b "
            "AND f.sec < {e} AND o.sec < {e}"
        ),
    ),
    "Q9": (
        "SELECT r.b, MAX(r.a) FROM r [RANGE 6 SECONDS SLIDE 4 SECONDS] GROUP BY r.b",
        "SELECT b, max(a) FROM r WHERE sec >= {e} // 4 * 4 - 6 AND sec < {e} // 4 * 4 GROUP BY b",
    ),
    "Q11": (
        "SELECT a, b FROM r WHERE a <= 4 AND b >= 2",
        "SELECT a, b FROM r WHERE a <= 4 AND b >= 2 AND sec < {e}",
    ),
    "Q12": (
        "SELECT r.a, s.b FROM r, s WHERE r.a < 3 AND r.a > s.b AND s.b > 0",
        (
            "SELECT r.a, s.b FROM r, s WHERE r.a < 3 AND r.a > s.b AND s.b > 0 "
            "AND r.sec < {e} AND s.sec < {e}"
        ),
    ),
    "Q13": (
        "SELECT r.a, s.b FROM r, s WHERE r.a <> s.b + 1 AND r.a >= 2",
        (
            "SELECT r.a, s.b FROM r, s WHERE r.a <> s.b + 1 AND r.a >= 2 AND r.sec < {e} "
            "AND s.sec < {e}"
        ),
    ),
    "Q16": (
        (
            "SELECT COUNT(*) FROM r [FROM TIMESTAMP '1970-01-01 00:00:05' SLIDE 4 SECONDS] "
            "WHERE a BETWEEN 1 AND 3"
        ),
        "SELECT count(*) FROM r WHERE sec >= 5 AND sec < {e} // 4 * 4 AND a BETWEEN 1 AND 3",
    ),
    "Q17": (
        (
            "SELECT COUNT(DISTINCT l.a) FROM r l [FROM TIMESTAMP '1970-01-01 00:00:08'], "
            "s d [RANGE 9 SECONDS] WHERE l.a = d.a AND l.b = d.b"
        ),
        (
            "SELECT count(DISTINCT l.a) FROM r l, s d WHERE l.a = d.a AND l.b = d.b AND l.sec >= 8 "
            "AND l.sec < {e} AND d.sec >= {e} - 9 AND d.sec < {e}"
        ),
    ),
    "Q20": (
        "SELECT MAX(s.a) FROM s [RANGE 6 SECONDS], t [RANGE 6 SECONDS] WHERE s.b = t.b",
        (
            "SELECT max(s.a) FROM s, t WHERE s.b = t.b AND s.sec >= {e} - 6 AND s.sec < {e} "
            "AND t.sec >= {e} - 6 AND t.sec < {e}"
        ),
    ),
    "Q22": (
        "SELECT a, b FROM r m WHERE NOT EXISTS (SELECT * FROM s WHERE s.a = m.a)",
        (
            "SELECT a, b FROM r WHERE sec < {e} AND (a IS NULL OR a NOT IN "
            "(SELECT a FROM s WHERE sec < {e} AND a IS NOT NULL))"
        ),
    ),
    "Q24": (
        "SELECT DISTINCT s.a FROM s, t WHERE s.b < t.b AND s.a > 0 AND s.a < 3",
        (
            "SELECT a FROM s WHERE sec < {e} AND a IN (1, 2) AND b < (SELECT max(b) FROM t "
            "WHERE sec < {e}) GROUP BY a"
        ),
    ),
    "Q28": (
        (
            "SELECT r.a, s.b FROM r, s WHERE r.a = s.a AND NOT EXISTS "
            "(SELECT * FROM t WHERE t.a = r.a)"
        ),
        (
            "SELECT r.a, s.b FROM r JOIN s ON r.a = s.a AND r.sec < {e} AND s.sec < {e} "
            "LEFT JOIN (SELECT DISTINCT a FROM t WHERE sec < {e}) u ON u.a = r.a WHERE u.a IS NULL"
        ),
    ),
    "Q29": (
        "SELECT DISTINCT a, b FROM r [ROWS 6]",
        (
            "SELECT DISTINCT a, b FROM (SELECT * FROM r WHERE sec < {e} "
            "ORDER BY sec DESC, __position DESC LIMIT 6)"
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
        "SELECT COUNT(*) FROM r [RANGE 7 SECONDS], s [RANGE 8 SECONDS] WHERE r.a = s.a",
        (
            "SELECT coalesce(sum(n * m), 0)::BIGINT FROM "
            "(SELECT a, count(*) n FROM r WHERE sec >= {e} - 7 AND sec < {e} GROUP BY a) JOIN "
            "(SELECT a, count(*) m FROM s WHERE sec >= {e} - 8 AND sec < {e} GROUP BY a) USING (a)"
        ),
    ),
    "Q37": (
        "SELECT a, b FROM r [WINDOW a ROWS 1]",
        (
            "SELECT last(a ORDER BY sec, __position), last(b ORDER BY sec, __position) FROM r "
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
            "ORDER BY sec DESC, __position DESC) AS n FROM r WHERE sec < {e}) "
            "WHERE n <= 3 AND a IS NOT NULL GROUP BY a HAVING count(b) = 3 AND min(b) = max(b)"
        ),
    ),
    "Q42": (
        (
            "SELECT p1.a, p1.b, p2.b FROM r [PARTITION BY a ROWS 2] p1, "
            "r [PARTITION BY a ROWS 2] p2 WHERE p1.a = p2.a AND p2 = PREV(p1) AND p1.b <> p2.b"
        ),
        (
            "SELECT a, b, before FROM (SELECT *, lag(b) OVER (PARTITION BY a ORDER BY sec, "
            "__position) AS before, row_number() OVER (PARTITION BY a ORDER BY sec DESC, "
            "__position DESC) AS n FROM r WHERE sec < {e}) "
            "WHERE n = 1 AND a IS NOT NULL AND b <> before"
        ),
    ),
    "Q44": (
        (
            "SELECT a FROM r WHERE ts >= NOW() - INTERVAL '8' SECOND AND "
            "ts < NOW() - INTERVAL '2' SECOND AND b BETWEEN 1 AND 2"
        ),
        "SELECT a FROM r WHERE sec >= {e} - 8 AND sec < {e} - 2 AND b BETWEEN 1 AND 2",
    ),
    "Q45": (
        (
            "SELECT s.type, COUNT(*) AS cnt FROM requests q [RANGE 6 SECONDS SLIDE 3 SECONDS], "
            "domains s WHERE q.domain = s.domain GROUP BY s.type HAVING cnt > 1 "
            "ORDER BY cnt, s.type"
        ),
        (
            "SELECT type, count(*) FROM requests JOIN domains USING (domain) "
            "WHERE sec >= {e} // 3 * 3 - 6 AND sec < {e} // 3 * 3 GROUP BY type HAVING count(*) > 1"
        ),
    ),
}


def world(number: int) -> Relations:
    dice = random.Random(seed("paper", number))

    def pairs(rows: int) -> list[tuple[int | None, int | None, int]]:
        values = (0, 1, 2, 3, None)
        return [
            (dice.choice(values), dice.choice(values), dice.randrange(16) * SECOND)
            for _ in range(dice.randrange(rows))
        ]

    names = ("a.edu", "b.com", "c.org", None)
    requests = [
        (
            dice.choice((1, 2, 3, None)),
            dice.choice(names),
            dice.choice(("/x", "/xy", "/z")),
            dice.randrange(16) * SECOND,
        )
        for _ in range(dice.randrange(40))
    ]
    return Relations(
        {
            "requests": (stream("requests", client_id=L, domain=V, url=V), requests),
            "domains": (
                table("domains", domain=V, type=V),
                [("a.edu", "school"), ("b.com", "commerce"), (None, "commerce")],
            ),
            **{name: (stream(name, a=L, b=L), pairs(25)) for name in ("r", "s", "t")},
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(scaled(2, 25)))
def test_a_query_of_the_papers_has_the_rows_of_sql_by_hand(number: int) -> None:
    relations = world(number)
    dice = random.Random(seed("instants", number))
    oracle = duckdb.connect()
    for name in relations.schemas:
        seconds = f", epoch_us(ts) // {SECOND} AS sec" if name != "domains" else ""
        rows = relations.connection.sql(f"SELECT *{seconds} FROM {name}").to_arrow_table()
        oracle.register("given", rows)
        oracle.execute(f"CREATE TABLE {name} AS FROM given")
    for name, (cql, by_hand) in QUERIES.items():
        for _ in range(scaled(3, 20)):
            end = dice.randrange(18)
            options = {"as_of_us": end * SECOND, "now_us": end * SECOND}
            expected = oracle.execute(by_hand.format(e=end)).fetchall()
            assert Counter(relations.rows(cql, **options)) == Counter(expected), (name, end)
