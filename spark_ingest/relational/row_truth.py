"""Truth of row answers by Spark: the rows in which an answer and Spark differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.sql.exact_query import POSITION
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.value_verdict import Claim, judge_value
from spark_ingest.cases import quoted, within
from spark_ingest.relational.row_question import LEFT, RIGHT, RelationalQuestion
from spark_ingest.scores import Judged


@dataclass(frozen=True, slots=True)
class RowCase:
    """A row question that was answered. number: of the question."""

    number: int
    question: RelationalQuestion
    answer: Answer

    @property
    def judgeable(self) -> bool:
        """Return whether the archive has the answer's tuples, and the answer all of them."""
        inputs = self.answer.inputs
        return all(not each.late and not each.dropped and not each.lost for each in inputs)

    @property
    def end_position(self) -> int:
        """One past the last tuple that the answer may have."""
        return max((each.position for each in self.answer.inputs), default=0)


def judge_rows(
    spark: SparkSession,
    relation: str,
    time_column: str,
    cases: Iterable[RowCase],
) -> list[Judged]:
    """Judge the answers of row questions; each takes one statement.

    A verdict is on the number of rows in which answer and truth differ, which the answer claims to
    be 0.

    Args:
      spark: the session.
      relation: a view with the stream's columns and POSITION (baseline.relation).
      time_column: the stream's event time.
      cases: judgeable cases.
    """
    judged = []
    for case in cases:
        wrong = _differences(case.answer, _truth(spark, relation, time_column, case))
        claim = Claim(0, 0, 0, "exact", None)
        verdict = judge_value(AggregateFunction.COUNT, claim, wrong, None)
        source = "standing rows" if case.question.standing else "rows asked once"
        judged.append(Judged(case.number, "", case.question.kind.value, source, 1.0, verdict))
    return judged


def _truth(spark: SparkSession, relation: str, time_column: str, case: RowCase) -> pa.Table:
    """Return the rows that Spark finds in the windows of an answer, below its positions."""
    now_us = case.answer.watermark_us
    positions = {each.alias: each.position for each in case.answer.inputs}
    views = [side for side in (LEFT, RIGHT) if side in positions]
    try:
        for side, window in zip((LEFT, RIGHT), case.question.windows, strict=True):
            if side not in positions:
                continue
            span = window.span(0 if now_us is None else now_us)
            inside = f"{within([span], time_column)} AND {POSITION} < {positions[side]}"
            _without_nan(spark.table(quoted(relation)).where(inside)).createOrReplaceTempView(side)
        return spark.sql(case.question.spark).toArrow()
    finally:
        for side in views:
            spark.catalog.dropTempView(side)


def _without_nan(frame: DataFrame) -> DataFrame:
    """Return a frame with NULL in place of NaN, as CQL reads columns of DOUBLE."""
    columns = [
        sf.nanvl(quoted(name), sf.lit(None)).alias(name) if kind == "double" else quoted(name)
        for name, kind in frame.dtypes
    ]
    return frame.select(*columns)


def _differences(answer: Answer, truth: pa.Table) -> int:
    """Return the number of rows that are missing, or should not be there.

    Of an answer that a limit cut, no row is missing.
    """
    answered, true = _bag(answer.table), _bag(truth)
    return (answered - true).total() + (0 if answer.cut else (true - answered).total())


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
