"""Errors of executors, out of Spark's words."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from shedder.errors import BadSetting, FailedPrecondition
from spark_ingest.runtime.executor_errors import raised, unwrapped
from spark_ingest.runtime.remote_files import opened

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "files.py", line 92, in rows_of
shedder.errors.SchemaMismatch: column 'x': what was met first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "files.py", line 92, in rows_of
shedder.errors.FailedPrecondition: 001.parquet cannot be read as Parquet: no end
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_last_of_ours_is_what_was_raised() -> None:
    found = raised(PythonException(TRACEBACK))
    assert type(found) is FailedPrecondition
    assert str(found) == "001.parquet cannot be read as Parquet: no end"
    with pytest.raises(FailedPrecondition, match="no end") as met, unwrapped():
        raise PythonException(TRACEBACK)
    assert isinstance(met.value.__cause__, PythonException)


@pytest.mark.parametrize(
    "text", ["", "ValueError: no", "shedder.errors.Unheard: of", "at shedder.errors.BadSetting: x"]
)
def test_what_is_not_ours_stays_as_it_came(text: str) -> None:
    with pytest.raises(PythonException), unwrapped():
        raise PythonException(text)


@pytest.mark.parametrize("place", ["dbfs:/tmp/x", "wasb://a@b/c"])
def test_places_that_arrow_does_not_know_are_named_with_those_it_does(place: str) -> None:
    with pytest.raises(BadSetting, match=r"is on no file system that Arrow opens .* s3a:") as met:
        opened(place)
    assert repr(place) in str(met.value)
