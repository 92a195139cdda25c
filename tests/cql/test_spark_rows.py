"""Spark has the rows of a plan that DuckDB has: one logical plan in the SQL of both."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.plans.logical_plan import scans_of
from shedder.cql.sql.exact_query import SqlDialect
from shedder.cql.sql.plan_sql import RelationSql, plan_sql
from shedder.errors import Unimplemented
from tests.cql.random_queries import Writer
from tests.cql.relations import SECOND, SEED, Relations, stream, table
from tests.scale import scaled
from tests.seeds import seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TEXTS = (
    "SELECT * FROM p ORDER BY k, v, ts LIMIT 5 OFFSET 2",
    "SELECT p.k, q.x FROM p LEFT JOIN q ON p.k = q.k AND p.v < q.v",
    "SELECT p.k, q.k AS other FROM p FULL JOIN q ON p.k = q.v WHERE p.x IS NULL",
    "SELECT k FROM p WHERE k IN (SELECT v FROM q) AND k NOT IN (SELECT v FROM q WHERE v > 1)",
    "SELECT k FROM p WHERE k NOT IN (SELECT v FROM q WHERE v IS NULL)",
    "SELECT DISTINCT v, k FROM p WHERE NOT EXISTS (SELECT * FROM q WHERE q.k = p.k AND q.v > p.v)",
    "SELECT k FROM p EXCEPT ALL SELECT v FROM q",
    "SELECT k, x FROM p INTERSECT SELECT k, x FROM q",
    "SELECT p.k, COUNT(*), SUM(q.v), MAX(q.x) FROM p JOIN q ON p.k = q.k GROUP BY p.k",
    "SELECT k, FIRST(x), LAST(v) FROM p GROUP BY k",
    "SELECT o.k, o.x FROM p [ROWS 7 SLIDE 3] o",
    "SELECT o.k, o.x FROM p [PARTITION BY k ROWS 2] o JOIN r ON o.k = r.k",
    "SELECT k, ts FROM p [RANGE 10 SECONDS] WHERE ts >= TIMESTAMP '1970-01-01 00:00:05'",
)


def drawn(dice: random.Random) -> Relations:
    """Two streams and a table with few values, NULLs, NaNs and equal event times."""

    def number() -> int | None:
        return dice.choice((0, 1, 1, 2, 3, None))

    def real() -> float | None:
        return dice.choice((-1.5, -0.0, 0.0, 2.25, float("nan"), None))

    columns = {"k": ColumnType.BIGINT, "v": ColumnType.BIGINT, "x": ColumnType.DOUBLE}
    streams = {
        name: (
            stream(name, **columns),
            [(number(), number(), real(), at // 2 * SECOND) for at in range(30)],
        )
        for name in ("p", "q")
    }
    rows = [(number(), number()) for _ in range(6)]
    return Relations(streams | {"r": (table("r", k=ColumnType.BIGINT, v=ColumnType.BIGINT), rows)})


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def bag(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows without an order; Spark's moments are in UTC and say so."""
    return Counter(tuple(map(_plain, row.values())) for row in rows)


def rows_in_spark(spark: SparkSession, relations: Relations, text: str) -> list[dict[str, Any]]:
    """The rows of a query of CQL in Spark, under the names of its columns."""
    query = relations.bound(text)
    found = {scan.alias: RelationSql(scan.relation, seed=SEED) for scan in scans_of(query.plan)}
    made = spark.sql(plan_sql(query.plan, found, SqlDialect.SPARK)).toArrow()
    assert made.column_names == [column.name for column in query.columns], text
    return made.to_pylist()


def register(spark: SparkSession, relations: Relations) -> None:
    """Make the relations views of Spark."""
    for name in relations.schemas:
        rows = relations.connection.table(name).to_arrow_table()
        spark.createDataFrame(rows).createOrReplaceTempView(name)


def test_spark_has_the_rows_of_duckdb_for_every_node_of_a_plan(spark: SparkSession) -> None:
    relations = drawn(random.Random(7))
    register(spark, relations)
    found = 0
    for text in TEXTS:
        ours = bag(relations.table(text).to_pylist())
        found += len(ours)
        assert bag(rows_in_spark(spark, relations, text)) == ours, text
    assert found > 5 * len(TEXTS)


def test_random_queries_have_the_same_rows_in_spark(spark: SparkSession) -> None:
    dice = random.Random(seed("rows in spark"))
    relations = drawn(dice)
    register(spark, relations)
    for _ in range(scaled(4, 100)):
        text = Writer(dice).query()
        theirs = rows_in_spark(spark, relations, text)
        assert bag(theirs) == bag(relations.table(text).to_pylist()), text


def test_sample_is_refused_for_spark(spark: SparkSession) -> None:
    relations = drawn(random.Random(7))
    with pytest.raises(Unimplemented, match="SAMPLE in SQL for spark"):
        rows_in_spark(spark, relations, "SELECT k FROM p SAMPLE(0.5)")
