"""Places of rows by Spark: whether rows that answers mark `certain` belong where they stand."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from shedder.cql.expressions.expression import BY_TIME
from shedder.cql.sql.exact_query import SqlDialect, exact_sql
from shedder.queries.certification.claims import Case
from shedder.queries.certification.row_places import (
    deciding_aggregates,
    judged_rows,
    places_hold,
    placing_query,
)
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.from_exact import evidence_from_exact
from spark_ingest.cases import condition_of, quoted


def places_by_case(
    spark: SparkSession, relation: str, time_column: str, cases: Iterable[Case], *, archived: bool
) -> dict[int, bool]:
    """Return whether the certain rows of each case are in their places, by number of the case.

    Each case that has certain rows takes one pass over the tuples; cases without are left out.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION (baseline.relation).
      time_column: the stream's event time.
      cases: answers that users were told.
      archived: POSITION orders tuples of equal time; False: their order is unknown.
    """
    found: dict[int, bool] = {}
    for case in cases:
        by_time = any(part.function in BY_TIME for part in deciding_aggregates(case.query))
        if (
            case.judgeable
            and judged_rows(case.query, case.answer).size
            and (archived or not by_time)
        ):
            holds = _places_hold(spark, relation, time_column, case)
            if holds is not None:
                found[case.number] = holds
    return found


def _places_hold(spark: SparkSession, relation: str, time_column: str, case: Case) -> bool | None:
    query, answer = placing_query(case.query), case.answer
    view = f"{relation}_of_{case.number}"
    condition = condition_of(case, time_column)
    spark.table(quoted(relation)).where(condition).createOrReplaceTempView(quoted(view))
    try:
        table = spark.sql(exact_sql(query, view, SqlDialect.SPARK, None, None)).toArrow()
    finally:
        spark.catalog.dropTempView(view)
    evidence = evidence_from_exact(
        query,
        table,
        start_us=answer.start_us,
        end_us=answer.end_us,
        watermark_us=answer.watermark_us,
        complete=answer.complete,
        position=answer.position,
        sources=("spark",),
    )
    return places_hold(case.query, answer, finish(query, evidence))
