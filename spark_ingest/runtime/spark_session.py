"""A Spark session for judging: local, quiet, in UTC, and gone afterwards."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StringType, StructType

from shedder.errors import FailedPrecondition
from shedder.streams.batches import ROWS_PER_BATCH
from spark_ingest.runtime.java_runtime import Java, JavaChoice, find_java

# Errors only. The gateway announces any level that differs from the one named for its own class.
_LOG4J = """rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n
"""
# Each statement is code of its own: with only the first compiler the JVM keeps 48 MB, which some
# hundred fill, and then it compiles nothing any more.
_BRIEF = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
# Hundreds of conditions are one long method, which the JVM by itself would never compile.
_LONG_METHODS = " -XX:-DontCompileHugeMethods"

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"  # Unknown before Spark 4.1, and harmless.
_ANY_BYTES = (1 << 31) - 1

_SOCKET_NAME_MAX = 103  # bytes; of sun_path on macOS, which has less than Linux.

DAEMON = "spark_ingest.runtime.pyspark_daemon"
"""What forks Python's workers, instead of `pyspark.daemon`."""

SUMMARISED_ROWS = ROWS_PER_BATCH
"""Rows in a batch that Spark hands to a task that summarises: the best number for synopses."""

PUSHED_ROWS = 10_000
"""Of the batches that are pushed: as Spark does it by itself. A partition that is pushed again is
the same batches again only if it is cut as it was, also by an earlier version."""

SPARK_MIN = (4, 3)
"""As pyproject.toml has it: driver and executors have the PySpark of their cluster's Spark."""

_FILES_MIN = "spark.sql.files.minPartitionNum"
_LEAVES = "spark.sql.leafNodeDefaultParallelism"


class UnsupportedSpark(FailedPrecondition):
    """This Spark is older than any that is known to work, or is not there to be seen."""


def check_spark(version: str) -> None:
    """Refuse a Spark that is too old.

    Args:
      version: as Spark says it, 4.3.0 or 4.4.0-SNAPSHOT.

    Raises:
      UnsupportedSpark: it says which would do.
    """
    numbers = [int(part) if part.isdecimal() else -1 for part in version.split(".")[:2]]
    if tuple(numbers) < SPARK_MIN:
        least = ".".join(map(str, SPARK_MIN))
        raise UnsupportedSpark(
            f"Spark {version} is not supported, {least} or newer is; here "
            "`pip install 'shedder[spark]'` brings one, and the cluster's must not be older"
        )


def check_classic(frame: DataFrame) -> None:
    """Refuse a frame of Spark Connect, whose partitions and readers cannot be inspected.

    Raises:
      UnsupportedSpark: names a kind of session that works.
    """
    if getattr(frame, "_jdf", None) is None:
        raise UnsupportedSpark(
            "Spark Connect is not supported: a pipeline must run where Spark's own driver does; "
            "start it with spark-submit, or leave remote= and SPARK_REMOTE out"
        )


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How big the judge may be.

    cores: of local[cores]. heap_mb: of the one JVM, driver and executor together.
    brief: the JVM compiles quickly and not well: a judge of a million rows is done with 40 % less
      CPU before better code would have paid.
    """

    cores: int = 2
    heap_mb: int = 2048
    brief: bool = False


@contextmanager
def spark_session(
    settings: SparkSettings | None = None, java: Java | None = None
) -> Iterator[SparkSession]:
    """A session in its own JVM; when the block ends, the JVM has ended and its files are gone.

    If this thread has a session already, the block uses that session and leaves it running.

    Args:
      settings: cores and heap; two cores and 2 GiB when None. A present session keeps its own.
      java: the runtime; None finds one as SHEDDER_JAVA says.

    Raises:
      NoJava: no usable runtime. UnsupportedSpark: the installed PySpark is too old.
    """
    check_spark(pyspark.__version__)
    if (present := SparkSession.getActiveSession()) is not None:
        with without_pandas():
            yield present
        return
    chosen = settings or SparkSettings()
    runtime = java or find_java(JavaChoice.from_environment())
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shedder-spark-")))
        stack.enter_context(
            _environment(
                {
                    "JAVA_HOME": str(runtime.shim(scratch / "java")),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                }
            )
        )
        stack.enter_context(without_pandas())
        session = _start(chosen, scratch)
        stack.callback(_stop, session)
        yield session


@contextmanager
def without_pandas() -> Iterator[None]:
    """What is used of pandas here (none of it) works with pandas 3, whatever PySpark warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


@contextmanager
def having(session: SparkSession, setting: str, value: int | str) -> Iterator[None]:
    """A setting of the session has another value for a while."""
    before = session.conf.get(setting, None)
    session.conf.set(setting, value)
    try:
        yield
    finally:
        if before is None:  # The session did not set it.
            session.conf.unset(setting)
        else:
            session.conf.set(setting, before)


def files_min(session: SparkSession) -> int:
    """Return the least number of partitions of a file scan: as configured, else the cores."""
    for setting in (_FILES_MIN, _LEAVES):
        if (said := session.conf.get(setting, None)) is not None:
            return int(said)
    return session.sparkContext.defaultParallelism


@contextmanager
def cut_as_before(session: SparkSession, least: int) -> Iterator[None]:
    """Files are read in so many partitions at least, unless the session says itself in how many."""
    if session.conf.get(_FILES_MIN, None) is not None:
        yield
        return
    with having(session, _FILES_MIN, least):
        yield


@contextmanager
def cut_alike(session: SparkSession, rows: int) -> Iterator[None]:
    """Hand rows to Python in batches of `rows`, whatever the session is set to.

    The limit in bytes is lifted. Checking the bytes after each row takes Spark as long as all of
    its other work on the row. A changed limit would also cut repeated pushes into other batches.
    """
    with having(session, _ROWS, rows), having(session, _BYTES, _ANY_BYTES):
        yield


def summarised_rows(schema: StructType) -> int:
    """Return how many rows a batch has that Spark hands to a task that summarises these columns.

    The best number for synopses; fewer if a column's values can have any size.
    """
    any_size = any(isinstance(field.dataType, StringType | BinaryType) for field in schema.fields)
    return PUSHED_ROWS if any_size else SUMMARISED_ROWS


def pushed_rows(schema: StructType) -> int:
    """Of how many rows the batches are that are pushed, whatever their columns."""
    del schema
    return PUSHED_ROWS


def _start(settings: SparkSettings, scratch: Path) -> SparkSession:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    builder: SparkSession.Builder = SparkSession.Builder()
    options = {
        "spark.driver.memory": f"{settings.heap_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}"
        f" -Djava.io.tmpdir={scratch}{_LONG_METHODS}{_BRIEF if settings.brief else ''}",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": DAEMON,
        "spark.python.unix.domain.socket.enabled": str(_has_local_sockets(scratch)).lower(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.master(f"local[{settings.cores}]").appName("shedder judge").getOrCreate()


def _has_local_sockets(scratch: Path) -> bool:
    """Return whether JVM and workers can avoid TCP, where each task waits 40 ms for an ACK."""
    name = scratch / f".{uuid.UUID(int=0)}.sock"  # As the JVM and PySpark's daemon name theirs.
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(name)) <= _SOCKET_NAME_MAX


def _stop(session: SparkSession) -> None:
    """Stop the session and its JVM, which pyspark would leave until the interpreter ends."""
    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=60)
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
