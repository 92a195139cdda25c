"""Spark sees every tuple of an archive once, at its position, whatever layouts its runs have."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shedder.archive.archive_store import Store
from shedder.archive.files.file_system import OsFiles
from shedder.archive.metadata.catalog_entries import StreamEntry
from shedder.archive.runs.run_format import write_run
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.archive_layout import Hybrid, Layout, Plain
from spark_ingest.baseline import relation, sealed_stream
from tests.archive.schemas import SCHEMA, batch

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("layouts", [[Hybrid(4, 3)], [Plain(), Hybrid(4, 3), Plain()]], ids=str)
def test_positions_are_those_of_the_stream(
    spark: SparkSession, tmp_path: Path, layouts: list[Layout]
) -> None:
    store = Store.open(tmp_path)
    store.create_stream(SCHEMA)
    for number, layout in enumerate(layouts):
        entry = StreamEntry(1, replace(SCHEMA, layout=layout))
        run = write_run(OsFiles(), tmp_path, entry, number * 50, [batch(number * 50, 50)])
        store.catalog.add_run(run)
    store.close()
    with relation(spark, sealed_stream(tmp_path, SCHEMA.name)) as name:
        rows = spark.sql(f"SELECT serial, {POSITION} AS p FROM `{name}`").collect()
    assert sorted(row.p for row in rows) == list(range(50 * len(layouts)))
    assert all(row.serial == row.p for row in rows)
