"""Joins, set operations and subqueries: rows worked out by hand, and refusals."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import Join, JoinKind, Plan, Scan, inputs_of, scans_of
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.errors import (
    BadQuery,
    ShedderError,
    TypeMismatch,
    Unimplemented,
    UnknownColumn,
    UnknownStream,
)
from tests.cql.relations import Relations, stream, table

L, V = ColumnType.BIGINT, ColumnType.VARCHAR
WORLD = Relations(
    {
        "orders": (
            stream("orders", id=L, item=L, amount=L),
            [(1, 10, 5, 0), (2, 10, 7, 1), (3, 20, 1, 2), (4, None, 9, 3)],
        ),
        "payments": (
            stream("payments", order_id=L, amount=L),
            [(1, 5, 5), (2, 3, 6), (2, 4, 7), (9, 1, 8), (None, 2, 9)],
        ),
        "items": (
            table("items", item=L, name=V),
            [(10, "ten"), (20, "twenty"), (30, None)],
        ),
        "empty": (table("empty", item=L), []),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT o.id, p.amount FROM orders o, payments p WHERE o.id = p.order_id",
            [(1, 5), (2, 3), (2, 4)],
        ),
        (
            "SELECT id, name FROM orders LEFT JOIN items USING (item)",
            [(1, "ten"), (2, "ten"), (3, "twenty"), (4, None)],
        ),
        (
            "SELECT item, id, name FROM orders RIGHT JOIN items USING (item)",
            [(10, 1, "ten"), (10, 2, "ten"), (20, 3, "twenty"), (30, None, None)],
        ),
        (
            "SELECT item, id, name FROM orders FULL JOIN items USING (item)",
            [
                (10, 1, "ten"),
                (10, 2, "ten"),
                (20, 3, "twenty"),
                (30, None, None),
                (None, 4, None),
            ],
        ),
        (
            (
                "SELECT id FROM orders LEFT JOIN items i ON orders.item = i.item "
                "AND i.name = 'ten' WHERE i.item IS NULL"
            ),
            [(3,), (4,)],
        ),
        (
            "SELECT a.id, b.id FROM orders a, orders b WHERE a.item = b.item AND a.id < b.id",
            [(1, 2)],
        ),
        (
            (
                "SELECT o.id, i.name, p.amount FROM orders o, items i, payments p "
                "WHERE i.item = o.item AND p.order_id = o.id AND p.amount < o.amount"
            ),
            [(2, "ten", 3), (2, "ten", 4)],
        ),
        (
            (
                "SELECT x.id FROM items i, payments p, orders x "
                "WHERE i.item = x.item AND x.id = p.order_id"
            ),
            [(1,), (2,), (2,)],
        ),
        ("SELECT COUNT(*), SUM(e.item) FROM items CROSS JOIN empty e", [(0, None)]),
        ("SELECT o.amount FROM orders o JOIN payments p ON o.amount < p.amount", [(1,)] * 4),
        ("SELECT items.* FROM orders JOIN items USING (item) WHERE id = 3", [(20, "twenty")]),
        ("SELECT * FROM items JOIN empty USING (item)", []),
        # Set operations: NULLs are equal, and multiplicities follow v1 + v2, v1 - v2, the least.
        ("SELECT item FROM orders UNION SELECT item FROM items", [(10,), (20,), (None,), (30,)]),
        ("SELECT item FROM orders EXCEPT SELECT item FROM items", [(None,)]),
        ("SELECT item FROM orders EXCEPT ALL SELECT item FROM items", [(10,), (None,)]),
        (
            "SELECT item FROM orders INTERSECT ALL SELECT item FROM orders WHERE id > 1",
            [(10,), (20,), (None,)],
        ),
        ("SELECT item FROM orders INTERSECT SELECT item FROM items", [(10,), (20,)]),
        (
            (
                "SELECT 1 AS n FROM empty UNION ALL (SELECT 2 FROM orders LIMIT 1) UNION ALL "
                "SELECT item FROM items WHERE item > 20"
            ),
            [(2,), (30,)],
        ),
        # NOT IN is unknown for NULL on either side; NOT EXISTS is not.
        (
            "SELECT id FROM orders WHERE item IN (SELECT item FROM items WHERE name = 'ten')",
            [(1,), (2,)],
        ),
        (
            "SELECT id FROM orders WHERE item NOT IN (SELECT item FROM items WHERE name = 'ten')",
            [(3,)],
        ),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM payments)", []),
        (
            "SELECT id FROM orders WHERE item NOT IN (SELECT item FROM empty)",
            [(1,), (2,), (3,), (4,)],
        ),
        (
            (
                "SELECT id FROM orders WHERE NOT EXISTS "
                "(SELECT * FROM payments WHERE order_id = orders.id)"
            ),
            [(3,), (4,)],
        ),
        (
            (
                "SELECT id FROM orders o WHERE o.amount NOT IN "
                "(SELECT amount FROM payments WHERE order_id = o.id)"
            ),
            [(2,), (3,), (4,)],
        ),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM empty)", []),
        ("SELECT id FROM orders WHERE id < 3 AND NOT EXISTS (SELECT 1 FROM empty)", [(1,), (2,)]),
        # A correlated count over no rows is 0, a correlated sum NULL.
        (
            (
                "SELECT id, (SELECT COUNT(*) FROM payments p WHERE p.order_id = o.id) AS n, "
                "(SELECT SUM(amount) FROM payments p WHERE p.order_id = o.id) AS paid FROM orders o"
            ),
            [(1, 1, 5), (2, 2, 7), (3, 0, None), (4, 0, None)],
        ),
        (
            "SELECT id FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
            [(2,), (4,)],
        ),
        ("SELECT (SELECT MAX(item) FROM empty) AS nothing FROM items", [(None,)] * 3),
        (
            (
                "SELECT item, COUNT(*) AS n FROM orders GROUP BY item HAVING n > "
                "(SELECT COUNT(*) FROM items i WHERE i.item = orders.item)"
            ),
            [(10, 2), (None, 1)],
        ),
        (
            (
                "SELECT name, COUNT(*), SUM(o.amount) FROM orders o JOIN items i "
                "ON o.item = i.item GROUP BY name"
            ),
            [("ten", 2, 12), ("twenty", 1, 1)],
        ),
        (
            (
                "SELECT t.n, COUNT(*) FROM (SELECT item, COUNT(*) AS n FROM orders GROUP BY item) "
                "t GROUP BY t.n"
            ),
            [(2, 1), (1, 2)],
        ),
        (
            (
                "WITH totals AS (SELECT item, SUM(amount) AS total FROM orders GROUP BY item) "
                "SELECT a.item FROM totals a, totals b WHERE a.total > b.total"
            ),
            [(10,), (10,), (None,)],
        ),
        ("WITH orders AS (SELECT item FROM items) SELECT * FROM orders", [(10,), (20,), (30,)]),
        # An inner name hides an outer one.
        (
            "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items o WHERE o.item = 30)",
            [(1,), (2,), (3,), (4,)],
        ),
        (
            (
                "SELECT COUNT(DISTINCT o.item), MEDIAN(o.amount) FROM orders o, items i "
                "WHERE o.item = i.item"
            ),
            [(2, 5)],
        ),
    ],
)
def test_rows_of_several_relations(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert Counter(WORLD.rows(text)) == Counter(expected)


def test_null_filter_of_an_outer_joins_right_side_is_kept() -> None:
    """DuckDB 2.0.0 pushed it into an Arrow table and lost it as it made an anti-join."""
    text = (
        "SELECT o.id FROM orders o LEFT JOIN orders p ON o.item = p.item AND p.amount IS NULL "
        "WHERE p.item IS NULL"
    )
    assert Counter(WORLD.rows(text)) == Counter([(1,), (2,), (3,), (4,)])


def test_rows_come_in_the_order_that_is_asked_for() -> None:
    text = (
        "SELECT o.id FROM orders o, items i WHERE o.item = i.item ORDER BY i.name DESC, o.id DESC"
    )
    assert WORLD.rows(text) == [(3,), (2,), (1,)]
    text = (
        "SELECT id FROM orders UNION ALL SELECT item FROM items ORDER BY id DESC LIMIT 2 OFFSET 1"
    )
    assert WORLD.rows(text) == [(20,), (10,)]
    text = "(SELECT id FROM orders ORDER BY id DESC LIMIT 2) ORDER BY id"
    assert WORLD.rows(text) == [(3,), (4,)]


def test_sides_of_a_set_operation_get_one_type() -> None:
    whole = WORLD.table("SELECT id FROM orders UNION ALL SELECT amount * 0.5 FROM orders")
    assert whole.schema.types == [ColumnType.DOUBLE.arrow]


@pytest.mark.parametrize(
    "test",
    [
        "name IN (SELECT NULL FROM orders)",
        "NULL IN (SELECT name FROM items)",
        "NULL NOT IN (SELECT name FROM items)",
        "NULL IN (SELECT NULL FROM orders)",
    ],
)
def test_null_is_in_no_subquery_of_any_type(test: str) -> None:
    assert WORLD.rows(f"SELECT item FROM items WHERE {test}") == []


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("SELECT NULL FROM orders", "SELECT name FROM items", ColumnType.VARCHAR),
        ("SELECT name FROM items", "SELECT NULL FROM orders", ColumnType.VARCHAR),
        ("SELECT ts FROM orders", "SELECT DISTINCT NULL FROM orders", ColumnType.TIMESTAMP),
        ("SELECT ts FROM orders", "SELECT '2026-01-01' FROM items", ColumnType.TIMESTAMP),
        (
            "SELECT NULL FROM items UNION ALL SELECT NULL FROM items",
            "(SELECT name FROM items ORDER BY item LIMIT 1)",
            ColumnType.VARCHAR,
        ),
        (
            "SELECT name FROM items",
            "(SELECT NULL FROM items ORDER BY item LIMIT 1)",
            ColumnType.VARCHAR,
        ),
        ("SELECT 'a' FROM items", "SELECT NULL FROM items", ColumnType.VARCHAR),
        ("SELECT id = 1 FROM orders", "SELECT NULL FROM items", ColumnType.BOOLEAN),
    ],
)
def test_a_constant_gets_the_type_of_the_other_side(
    left: str, right: str, kind: ColumnType
) -> None:
    one, other = WORLD.table(left), WORLD.table(right)
    both = WORLD.table(f"{left} UNION ALL {right}")
    assert both.schema.types == [kind.arrow]
    nulls = one.column(0).null_count + other.column(0).null_count
    assert (both.num_rows, both.column(0).null_count) == (one.num_rows + other.num_rows, nulls)


def test_every_relation_of_a_query_is_named_once() -> None:
    statement = parse(
        "WITH w AS (SELECT * FROM d) SELECT (SELECT MAX(x) FROM e) FROM b, (SELECT * FROM a, b) q "
        "LEFT JOIN w ON w.x = q.x WHERE x IN (SELECT x FROM f WHERE EXISTS (SELECT 1 FROM g)) "
        "UNION SELECT 1 FROM c"
    )
    assert isinstance(statement, RelationalSelect)
    assert sorted(statement.relations) == ["a", "b", "c", "d", "e", "f", "g"]


def test_aliases_of_a_plan_are_unique() -> None:
    plan = WORLD.bound(
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM payments o WHERE o.amount = 1) "
        "AND id IN (SELECT O.item FROM orders O)"
    ).plan
    assert [scan.alias for scan in scans_of(plan)] == ["o", "o_2", "O_3"]


def test_conditions_of_where_stand_at_the_joins_that_they_connect() -> None:
    plan = WORLD.bound(
        "SELECT 1 FROM orders o, items i, payments p "
        "WHERE p.order_id = o.id AND o.amount > 1 AND i.item = o.item"
    ).plan
    joins = [node for node in nodes(plan) if isinstance(node, Join)]
    assert [join.kind for join in joins] == [JoinKind.INNER] * 2
    assert all(join.condition is not None for join in joins)
    order = [node.alias for node in nodes(plan) if isinstance(node, Scan)]
    assert order == ["o", "i", "p"]


def nodes(plan: Plan) -> list[Plan]:
    return [plan, *(node for each in inputs_of(plan) for node in nodes(each))]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT * FROM orders, payments", BadQuery, "payments is joined with orders without a"),
        ("SELECT id FROM orders, items WHERE id > 1", BadQuery, "or write CROSS JOIN"),
        ("SELECT id FROM orders JOIN items ON TRUE", BadQuery, "or write CROSS JOIN"),
        ("SELECT id FROM orders LEFT JOIN items ON name = 'x'", BadQuery, "compares no column"),
        ("SELECT id FROM orders JOIN items", BadQuery, "JOIN needs ON"),
        ("SELECT id FROM orders CROSS JOIN items ON TRUE", BadQuery, "has no condition"),
        ("SELECT id FROM orders NATURAL JOIN items", Unimplemented, "NATURAL"),
        ("SELECT id FROM orders SEMI JOIN items ON TRUE", Unimplemented, "SEMI JOIN"),
        (
            "SELECT item FROM orders o JOIN items i ON o.item = i.item",
            BadQuery,
            "could be o.item or i.item",
        ),
        (
            "SELECT x.id FROM orders o JOIN items i ON o.item = i.item",
            BadQuery,
            "no relation x in FROM; there are o, i",
        ),
        ("SELECT o.name FROM orders o JOIN items i ON o.item = i.item", UnknownColumn, "i.name"),
        (
            "SELECT 1 FROM orders, orders WHERE id = 1",
            BadQuery,
            "two relations in FROM are named orders",
        ),
        ("SELECT 1 FROM nothing, orders WHERE x = id", UnknownStream, "no stream 'nothing'"),
        ("SELECT 1 FROM orders o JOIN items i ON o.id = i.name", TypeMismatch, '"o.id" is BIGINT'),
        ("SELECT 1 FROM orders JOIN items USING (name)", UnknownColumn, "no column 'name'"),
        (
            "SELECT id FROM orders UNION SELECT name FROM items",
            TypeMismatch,
            "UNION takes values of one type",
        ),
        (
            "SELECT id FROM orders EXCEPT SELECT item, name FROM items",
            BadQuery,
            "the left has 1, the right 2",
        ),
        (
            "SELECT id FROM orders UNION SELECT item FROM items ORDER BY amount",
            UnknownColumn,
            "no column 'amount'",
        ),
        (
            "SELECT id FROM orders WHERE id IN (SELECT item, name FROM items)",
            BadQuery,
            "one column, not of 2",
        ),
        (
            "SELECT id FROM orders WHERE id IN (SELECT name FROM items)",
            TypeMismatch,
            "takes values of one type",
        ),
        (
            "SELECT (SELECT item, name FROM items LIMIT 1) FROM orders",
            BadQuery,
            "has one column, not 2",
        ),
        ("SELECT (SELECT item FROM items) FROM orders", BadQuery, "at most one row"),
        (
            "SELECT id FROM orders WHERE id = 1 OR EXISTS (SELECT 1 FROM items)",
            BadQuery,
            "instead of OR, write UNION",
        ),
        (
            "SELECT id IN (SELECT item FROM items) FROM orders",
            BadQuery,
            r"IN \(SELECT ...\) stands in WHERE",
        ),
        (
            (
                "SELECT id FROM orders o WHERE id > "
                "(SELECT MAX(p.amount) FROM payments p WHERE p.amount < o.amount)"
            ),
            BadQuery,
            "write a JOIN and GROUP BY",
        ),
        (
            (
                "SELECT id FROM orders o WHERE EXISTS "
                "(SELECT 1 FROM items i WHERE i.item = o.item LIMIT 1)"
            ),
            BadQuery,
            "without GROUP BY and LIMIT",
        ),
        (
            (
                "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE EXISTS "
                "(SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.amount = i.item))"
            ),
            BadQuery,
            "o.id is a column of a query around a subquery",
        ),
        (
            "SELECT id FROM orders WHERE EXISTS (SELECT item AS id FROM items WHERE id = 1)",
            BadQuery,
            "the output id of the subquery",
        ),
        (
            "SELECT t.id FROM orders o, (SELECT o.id FROM items i) t WHERE t.id = o.id",
            BadQuery,
            "no relation o",
        ),
        ("SELECT id FROM orders HAVING id > 1", BadQuery, "write WHERE"),
        (
            "SELECT id FROM orders WHERE COUNT(*) IN (SELECT item FROM items)",
            BadQuery,
            "cannot stand in WHERE; use HAVING",
        ),
        (
            "SELECT o.id, COUNT(*) FROM orders o, items i WHERE o.item = i.item",
            BadQuery,
            "neither in GROUP BY",
        ),
        (
            "SELECT TOP(o.id, 3) FROM orders o, items i WHERE o.item = i.item",
            TypeMismatch,
            r"TOP\(.o.id., 3\) is a list",
        ),
        (
            "SELECT HISTOGRAM(id, [1, 2]) FROM (SELECT id FROM orders) o",
            TypeMismatch,
            r"HISTOGRAM\(.o.id., \[1, 2\]\) is a list",
        ),
        (
            "SELECT COUNT(*) FROM orders o, items i WHERE o.item = i.item ORDER BY TOP(o.id, 3)",
            TypeMismatch,
            r"TOP\(.o.id., 3\) is a list",
        ),
        ('SELECT id AS "" FROM orders', BadQuery, "an output cannot have an empty name"),
        ('SELECT n FROM (SELECT id AS "", 1 AS n FROM orders) o', BadQuery, "an empty name"),
        (
            "SELECT SUM((SELECT MAX(item) FROM items)) FROM orders",
            BadQuery,
            "inside of an aggregate",
        ),
        ("SELECT * FROM (SELECT id FROM orders)", BadQuery, "needs a name"),
        (
            "WITH a AS (SELECT id FROM orders), A AS (SELECT 1 FROM items) SELECT * FROM a",
            BadQuery,
            "two queries of WITH",
        ),
        ("WITH RECURSIVE a AS (SELECT id FROM orders) SELECT * FROM a", Unimplemented, "RECURSIVE"),
        (
            "SELECT id FROM orders o, items i WHERE o.item = i.item WITHIN 1 PERCENT",
            BadQuery,
            "leave WITHIN away",
        ),
    ],
)
def test_bad_queries_over_several_relations_are_refused(
    text: str, error: type[ShedderError], message: str
) -> None:
    with pytest.raises(error, match=message):
        WORLD.bound(text)


def test_queries_of_with_cannot_grow_without_bound() -> None:
    doubled = ", ".join(
        f"q{n} AS (SELECT a.x FROM q{n - 1} a, q{n - 1} b WHERE a.x = b.x)" for n in range(1, 40)
    )
    with pytest.raises(BadQuery, match="at most 64 are joined"):
        parse(f"WITH q0 AS (SELECT x FROM s), {doubled} SELECT * FROM q39")
    chained = ", ".join(f"q{n} AS (SELECT x FROM q{n - 1})" for n in range(1, 60))
    with pytest.raises(BadQuery, match="nested too deeply"):
        parse(f"WITH q0 AS (SELECT x FROM s), {chained} SELECT * FROM q59")
