"""Sources of text (CSV, JSON, XML): what they cannot read must not become NULL without a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampType

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.remote_summaries.summary_builder import Plans
from shedder.errors import FailedPrecondition
from spark_ingest.executors import Service
from spark_ingest.rejected_rows import CORRUPT

_TEXT = ("csv", "json", "xml")
_NAME_OPTION = "columnNameOfCorruptRecord"


class SilentNulls(FailedPrecondition):
    """The reader of a frame would drop or replace what it cannot read without reporting it."""


def columns_of(service: Service, stream: str) -> StructType:
    """A stream's columns for a reader of text: with CORRUPT, by which poison is told from NULL.

    Args:
      service: where the stream is. stream: its name.

    Raises:
      UnknownStream, Unreachable.
    """
    with service.connect() as client:
        schema = Plans.from_json(client.plans(stream)).schema
    fields = [StructField(column.name, _spark_type(column.type)) for column in schema.columns]
    return StructType([*fields, StructField(CORRUPT, StringType())])


def _spark_type(kind: ColumnType) -> DataType:
    # A TIMESTAMP is a moment, which text may give with a zone; Arrow has it without one.
    return TimestampType() if kind is ColumnType.TIMESTAMP else from_arrow_type(kind.arrow)


def check_readers(frame: DataFrame) -> None:
    """Check that all readers of text below a frame report what they cannot read, or stop there.

    Raises:
      SilentNulls: one of them does neither.
    """
    for reader in _readers(frame):
        mode = reader.options.get("mode", "PERMISSIVE").upper()
        if mode == "DROPMALFORMED":
            raise SilentNulls(
                f"the frame's {reader.format} reader leaves out rows that it cannot read, and "
                f"would not report them: take its option mode={mode} away"
            )
        name = reader.options.get(_NAME_OPTION.lower()) or frame.sparkSession.conf.get(
            f"spark.sql.{_NAME_OPTION}"
        )
        if mode != "FAILFAST" and name not in reader.columns:
            raise SilentNulls(
                f"the frame's {reader.format} reader makes NULL of what it cannot read and would "
                f"not report it: give it the column `{name} STRING` beside the others, as "
                "spark_ingest.sources.columns_of does, or the option mode=FAILFAST"
            )


@dataclass(frozen=True, slots=True)
class _Reader:
    """One source of text. options: names in lower case."""

    format: str
    options: dict[str, str]
    columns: tuple[str, ...]


def _readers(frame: DataFrame) -> Iterator[_Reader]:
    """Of text, below a frame: only the plan knows them, and PySpark has no words for it."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return  # A frame of Spark Connect, whose plan cannot be inspected.
    leaves = plan.queryExecution().analyzed().collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        kind = _kind(leaf)
        if kind == "StreamingRelation":
            source = leaf.dataSource()
            name, options = source.className(), source.options()
        elif kind == "LogicalRelation" and _kind(leaf.relation()) == "HadoopFsRelation":
            source = leaf.relation()
            name, options = source.fileFormat().toString(), source.options()
        else:
            continue
        if name.lower() in _TEXT:
            yield _Reader(name.lower(), _options(options), tuple(leaf.schema().fieldNames()))


def _kind(of: Any) -> str:
    return str(of.getClass().getSimpleName())


def _options(options: Any) -> dict[str, str]:
    found, each = {}, options.iterator()
    while each.hasNext():
        pair = each.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found
