"""One Spark session for all tests that need the judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_ingest.session import SparkSettings, spark_session
from tests.server.conftest import Authority


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(SparkSettings(cores=2, heap_mb=2048, brief=True)) as session:
        yield session


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    directory = tmp_path / "identity"
    directory.mkdir()
    return Authority(directory)
