"""The self-audit on Spark: answers that users were told are computed again, as long as it runs.

The service lends the newest answers of its standing queries; Spark finds what each is measured by,
in shared passes over the archive or over the tuples' own source; what came of each goes back, into
the query's certification, its answers and the metrics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from shedder.client.client import Client
from shedder.cql.binding.bind import bind
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import BY_TIME
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.engine.audit.external_audit import AuditReport, AuditTicket
from shedder.engine.synopsis_plans.stored_query_text import read_stored
from shedder.errors import BadSetting, FailedPrecondition, OutOfRange, ShedderError
from shedder.logging_defaults import be_quiet
from shedder.queries.certification.audit import (
    chooses,
    look_at,
    measured_closely,
    without_decisions,
)
from shedder.queries.certification.claims import Case
from spark_ingest.baseline import SealedStream, reading, relation, sealed_stream, stretch_of
from spark_ingest.cases import quoted
from spark_ingest.exact_counts import Truths, find_truths
from spark_ingest.judgement import compared
from spark_ingest.row_places import places_by_case
from spark_ingest.runtime.spark_session import check_spark

ANSWERS = 100
"""Answers that a round audits by default."""

_NOTHING = AuditReport(0, 0, 0, 0)
_UTC = ("UTC", "Etc/UTC", "Z", "GMT")

_log = structlog.get_logger("spark_ingest.self_audit")


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of one answer.

    values, missed: how many were compared, and were outside of their intervals. lost: why the query
    is not certified now; "": it is.
    """

    query: str
    values: int
    missed: int
    lost: str


@dataclass(frozen=True, slots=True)
class Round:
    """Answers that were looked at together.

    skipped: reported too late, or tuples were deleted meanwhile. passes: over the tuples.
    """

    looked: tuple[Looked, ...]
    skipped: int
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Truths:
    """places: whether the certain rows of each published case are in their places, by number."""

    values: Truths
    places: dict[int, bool]


def audit_round(
    spark: SparkSession,
    client: Client,
    stream: str,
    tuples: Path | DataFrame,
    *,
    answers: int = ANSWERS,
) -> Round:
    """Audit the newest answers of a stream's standing queries that were not audited yet.

    Args:
      spark: session whose time zone is UTC.
      client: client of the service, with the scope admin.
      stream: name of the stream.
      tuples: data directory of the service, whose runs Spark reads after the stream is sealed. Or
        a frame with at least all tuples that the service has accepted, from any source. With a
        frame, closed windows that contain tuples sent by `summarise` are audited, too.
      answers: largest number of answers; the least recently audited queries come first.

    Raises:
      UnknownStream, BadSetting, Unreachable.
      FailedPrecondition: the directory is not the one that the service serves.
      UnsupportedSpark: the session is of a Spark that is too old.
    """
    check_spark(spark.version)
    be_quiet()
    began = time.monotonic()
    archived = isinstance(tuples, Path)
    tickets = client.lend_answers(stream, answers=answers, without_archive=not archived)
    if not tickets:
        return Round((), 0, 0, time.monotonic() - began)
    try:
        schema = client.schema(stream)
        cases = [_cases(number, each, schema) for number, each in enumerate(tickets)]
        truths = _truths(spark, client, schema, tuples, tickets, cases)
        verdicts = [_found(*pair, truths, archived=archived) for pair in cases]
    except BaseException as error:
        _give_back(client, tickets)
        if not isinstance(error, OutOfRange):
            raise
        _log.info("tuples_gone", stream=stream, error=str(error))
        return Round((), len(tickets), 0, time.monotonic() - began)
    looked, skipped = [], 0
    for each, found in zip(tickets, verdicts, strict=True):
        try:
            lost = client.report_audit(each.id, found)
        except FailedPrecondition as error:
            _log.info("too_late", query=each.query, error=str(error))
            skipped += 1
        else:
            looked.append(Looked(each.query, found.values, found.missed, lost))
    passes = truths.values.passes + len(truths.places)
    return Round(tuple(looked), skipped, passes, time.monotonic() - began)


def _give_back(client: Client, tickets: list[AuditTicket]) -> None:
    """Return lent answers for other audits; raises nothing, because a caller's error is pending."""
    for each in tickets:
        try:
            client.report_audit(each.id, _NOTHING)
        except FailedPrecondition:  # Its query was dropped, or the service started again.
            continue
        except ShedderError as error:  # It is away; that the loan ends it knows by itself.
            _log.info("not_given_back", query=each.query, error=str(error))
            return


def _cases(number: int, ticket: AuditTicket, schema: StreamSchema) -> tuple[Case, Case]:
    query: BoundQuery = bind(read_stored(ticket.published.query), schema)
    strict = Case(2 * number + 1, without_decisions(query), ticket.strict)
    return Case(2 * number, query, ticket.published), strict


def _found(published: Case, strict: Case, truths: _Truths, *, archived: bool) -> AuditReport:
    """Compare answers with the truth; in a frame the order of tuples of equal time is unknown."""
    values, wide = (
        [
            one
            for one in compared(case, truths.values)
            if measured_closely(one.aggregate, one.verdict.claim)
            and (archived or one.aggregate.function not in BY_TIME)
        ]
        for case in (published, strict)
    )
    query = published.query
    placed = truths.places.get(published.number)
    look = look_at(values, wide, query.confidence, chosen=chooses(query), placed=placed)
    if look is None:
        return _NOTHING
    counts = look.values, look.missed, look.fresh, look.fresh_missed
    return AuditReport(*counts, look.refuted, look.placed)


def _truths(
    spark: SparkSession,
    client: Client,
    schema: StreamSchema,
    tuples: Path | DataFrame,
    tickets: list[AuditTicket],
    cases: list[tuple[Case, Case]],
) -> _Truths:
    both = [case for pair in cases for case in pair]
    published = [case for case, _ in cases]
    archived = isinstance(tuples, Path)

    def of_relation(name: str) -> _Truths:
        time_column = schema.time_column
        values = find_truths(spark, name, time_column, both)
        return _Truths(
            values, places_by_case(spark, name, time_column, published, archived=archived)
        )

    if isinstance(tuples, Path):
        client.seal(schema.name)
        sealed = sealed_stream(tuples, schema.name)
        newest = max(each.published.position for each in tickets)
        if sealed.end_position < newest:
            raise FailedPrecondition(
                f"the runs in {tuples} end at {sealed.end_position:,} and the service has "
                f"{newest:,} tuples of {schema.name!r}: is this the directory that it serves?"
            )

        def found(sealed: SealedStream) -> _Truths:
            with relation(spark, sealed, *stretch_of(case.answer for case in both)) as name:
                return of_relation(name)

        return reading(sealed, found)
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC:
        raise BadSetting(f"spark.sql.session.timeZone is {zone}; to judge answers it must be UTC")
    name = f"tuples_of_{schema.name}"
    _as_the_stream(tuples, schema).createOrReplaceTempView(quoted(name))
    try:
        return of_relation(name)
    finally:
        spark.catalog.dropTempView(name)


def _as_the_stream(tuples: DataFrame, schema: StreamSchema) -> DataFrame:
    """The stream's columns in its types, without rows that it does not take."""
    columns = [
        sf.col(quoted(column.name)).cast("timestamp_ntz").alias(column.name)
        if column.type is ColumnType.TIMESTAMP
        else sf.col(quoted(column.name))
        for column in schema.columns
    ]
    frame = tuples.select(*columns, sf.lit(-1).cast("bigint").alias(POSITION))
    for column in schema.columns:
        if not column.nullable or column.name == schema.time_column:
            frame = frame.where(sf.col(quoted(column.name)).isNotNull())
    return frame
