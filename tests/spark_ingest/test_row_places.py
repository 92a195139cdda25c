"""Spark decides again where rows belong that answers mark `certain`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from shedder.queries.answers.answer import CERTAIN
from shedder.queries.certification.claims import Case
from spark_ingest.baseline import SealedStream, relation
from spark_ingest.question_runner import bound
from spark_ingest.row_places import places_by_case
from tests.spark_ingest.archives import answer, archive

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TEXT = "SELECT k, {} AS m FROM r {} GROUP BY k {}"
BY_MEAN = "ORDER BY m DESC LIMIT 1"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> SealedStream:
    """Groups 1, 2 and 3 with averages 3, 2 and 1; the last row makes group 3 the largest."""
    rows: dict[str, pa.Array[Any]] = {
        "ts": pa.array([0, 1, 2, 3, 4, 5, 9], pa.timestamp("us")),
        "k": pa.array([1, 1, 2, 2, 3, 3, 3], pa.int64()),
        "x": pa.array([2.0, 4.0, 1.0, 3.0, 0.0, 2.0, 100.0]),
    }
    directory: Path = tmp_path_factory.mktemp("archive") / "data"
    return archive(directory, "r", [pa.record_batch(rows)])


def case(sealed: SealedStream, number: int, text: str, shown: list[int], position: int) -> Case:
    said = answer({"k": shown}, {"m": [(1.0, 0.0, 9.0, "interval")] * len(shown)})
    table = said.table.append_column(CERTAIN, pa.array([True] * len(shown)))
    return Case(number, bound(text, sealed.schema), replace(said, table=table, position=position))


def test_certain_rows_are_compared_with_the_places_that_tuples_give_them(
    spark: SparkSession, sealed: SealedStream
) -> None:
    """Tuples behind the answer's position, outside of its WHERE or of its window do not count."""
    queries = [
        (TEXT.format("AVG(x)", "WHERE x < 50", "HAVING m > 1.5"), [1, 3], 7, False),
        (TEXT.format("AVG(x)", "", BY_MEAN), [1], 6, True),
        (TEXT.format("AVG(x)", "", BY_MEAN), [1], 7, False),
        (TEXT.format("LAST(x)", "", BY_MEAN), [1], 6, True),
        (TEXT.format("COUNT(DISTINCT x)", "", BY_MEAN), [2], 7, None),
        (TEXT.format("AVG(x)", "", ""), [], 7, None),
    ]
    cases = [case(sealed, at, *each[:3]) for at, each in enumerate(queries)]
    early = replace(cases[2].answer, start_us=0, end_us=9)
    windowed = replace(cases[2], number=20, answer=early)
    with relation(spark, sealed) as name:
        found = places_by_case(spark, name, "ts", [*cases, windowed], archived=True)
        assert [found.get(at) for at in range(len(queries))] == [holds for *_, holds in queries]
        assert found[20] is True
        assert places_by_case(spark, name, "ts", cases[3:4], archived=False) == {}
        assert not spark.catalog.tableExists(f"{name}_of_3")
