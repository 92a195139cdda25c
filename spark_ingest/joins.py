"""Sizes of joins, as Spark counts them: value by value, a statement for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from shedder.cql.expression import JOINS
from shedder.cql.render import POSITION, SqlDialect, exact_sql
from spark_ingest.cases import Case, Facts, Key

_VIEW = "shedder_joined"


def find_joins(
    spark: SparkSession, relation: str, case: Case, groups: Mapping[Key, dict[str, Facts]]
) -> None:
    """Put the size of each join that the case claims into the facts of its groups.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION.
      case: any judgeable one.
      groups: the case's true groups, with facts by output.
    """
    joins = [(name, each) for name, each in case.aggregates() if each.function in JOINS]
    if not joins:
        return
    answer = case.answer
    rows = spark.table(relation).where(f"`{POSITION}` < {answer.position}")
    rows.createOrReplaceTempView(_VIEW)
    for name, aggregate in joins:
        query = replace(case.query, aggregates=(aggregate,))
        sql = exact_sql(query, _VIEW, SqlDialect.SPARK, answer.start_us, answer.end_us)
        table = spark.sql(sql).toArrow()
        keys = [_plain(table[f"g{at}"]) for at in range(len(query.groups))]
        values = table["a0"].to_pylist()
        for at, value in enumerate(values):
            key = tuple(column[at] for column in keys)
            if key in groups:
                groups[key].setdefault(name, {})["value"] = value
    spark.catalog.dropTempView(_VIEW)


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Keys as answers have them: timestamps without a zone."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    return column.to_pylist()
