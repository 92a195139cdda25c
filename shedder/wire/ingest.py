"""Streams, receipts and ledgers on the wire."""

from __future__ import annotations

from collections.abc import Iterable

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import layout_from_text, layout_text
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.cql.statements.table_schema import RelationSchema, TableSchema
from shedder.engine.ingest.producer_sequences import Content, check_part
from shedder.errors import BadQuery, Unimplemented
from shedder.queries.answers.database_api import Ledger, QueryLedger, Receipt
from shedder.streams.push_parts import Part
from shedder.v1 import ingest_pb2


def receipt_to_wire(receipt: Receipt) -> ingest_pb2.Receipt:
    """The receipt as its message."""
    return ingest_pb2.Receipt(
        stream=receipt.stream,
        position=receipt.position,
        rows=receipt.rows,
        duplicate=receipt.duplicate,
        dropped=receipt.dropped,
        late=receipt.late,
    )


def receipt_from_wire(message: ingest_pb2.Receipt) -> Receipt:
    """The receipt in a message."""
    return Receipt(
        message.stream,
        message.position,
        message.rows,
        message.duplicate,
        message.dropped,
        message.late,
    )


def part_from_wire(batch: ingest_pb2.Batch) -> Part:
    """The place of a batch in its push.

    Raises:
      BadSetting: no batch can be there.
    """
    part = Part(batch.first_row, not batch.more, batch.skipped)
    check_part(part)
    return part


def contents_to_wire(
    contents: Iterable[Content],
) -> list[ingest_pb2.DescribeStreamResponse.Content]:
    """The newest pushes of a producer."""
    return [
        ingest_pb2.DescribeStreamResponse.Content(
            sequence=each.sequence, rows=each.rows, fingerprint=each.fingerprint
        )
        for each in contents
    ]


def contents_from_wire(message: ingest_pb2.DescribeStreamResponse) -> list[Content]:
    """The newest pushes of a producer."""
    return [
        Content(
            each.sequence, each.rows, each.fingerprint if each.HasField("fingerprint") else None
        )
        for each in message.contents
    ]


def schema_to_wire(schema: StreamSchema) -> ingest_pb2.DescribeStreamResponse:
    """What a producer must know of a stream. The seed stays here: samples depend on it."""
    return ingest_pb2.DescribeStreamResponse(
        stream=schema.name,
        columns=_columns_to_wire(schema),
        time_column=schema.time_column,
        lateness_us=schema.lateness_us,
        retain_us=schema.retain_us,
        layout=layout_text(schema.layout),
    )


def table_to_wire(schema: TableSchema) -> ingest_pb2.DescribeStreamResponse:
    """What a client must know of a table."""
    return ingest_pb2.DescribeStreamResponse(
        stream=schema.name, columns=_columns_to_wire(schema), primary_key=schema.key
    )


def table_from_wire(message: ingest_pb2.DescribeStreamResponse) -> TableSchema:
    """The columns and key of a table; its other properties stay with the server.

    Raises:
      Unimplemented: a newer server has a type that this client does not know.
    """
    try:
        columns = _columns_from_wire(message)
    except ValueError as error:
        raise Unimplemented(f"this client is older than the server: {error}") from None
    return TableSchema(message.stream, columns, tuple(message.primary_key))


def _columns_to_wire(schema: RelationSchema) -> list[ingest_pb2.DescribeStreamResponse.Column]:
    return [
        ingest_pb2.DescribeStreamResponse.Column(
            name=column.name, type=column.type.value, nullable=column.nullable
        )
        for column in schema.columns
    ]


def _columns_from_wire(message: ingest_pb2.DescribeStreamResponse) -> tuple[ColumnDefinition, ...]:
    return tuple(
        ColumnDefinition(column.name, ColumnType(column.type), column.nullable)
        for column in message.columns
    )


def schema_from_wire(message: ingest_pb2.DescribeStreamResponse) -> StreamSchema:
    """The stream's schema, with seed 0.

    Raises:
      Unimplemented: a newer server has a type or layout that this client does not know.
    """
    try:
        columns = _columns_from_wire(message)
        layout = layout_from_text(message.layout)
    except (ValueError, BadQuery) as error:
        raise Unimplemented(f"this client is older than the server: {error}") from None
    return StreamSchema(
        name=message.stream,
        columns=columns,
        time_column=message.time_column,
        lateness_us=message.lateness_us,
        retain_us=message.retain_us if message.HasField("retain_us") else None,
        layout=layout,
        seed=0,
    )


def ledger_to_wire(ledger: Ledger) -> ingest_pb2.GetLedgerResponse:
    """The ledger as its message."""
    queries = [
        ingest_pb2.GetLedgerResponse.QueryLedger(
            query=query.query, read=query.read, thinned=query.thinned, late=query.late
        )
        for query in ledger.queries
    ]
    return ingest_pb2.GetLedgerResponse(
        stream=ledger.stream,
        accepted=ledger.accepted,
        applied=ledger.applied,
        duplicate=ledger.duplicate,
        refused_batches=ledger.refused_batches,
        refused_rows=ledger.refused_rows,
        late=ledger.late,
        deleted=ledger.deleted,
        summarised=ledger.summarised,
        to_follow=ledger.to_follow,
        dropped=ledger.dropped,
        backfilled=ledger.backfilled,
        lost=ledger.lost,
        queries=queries,
    )


def ledger_from_wire(message: ingest_pb2.GetLedgerResponse) -> Ledger:
    """The ledger in a message."""
    return Ledger(
        stream=message.stream,
        accepted=message.accepted,
        applied=message.applied,
        duplicate=message.duplicate,
        refused_batches=message.refused_batches,
        refused_rows=message.refused_rows,
        late=message.late,
        deleted=message.deleted,
        summarised=message.summarised,
        to_follow=message.to_follow,
        dropped=message.dropped,
        backfilled=message.backfilled,
        lost=message.lost,
        queries=tuple(
            QueryLedger(query.query, query.read, query.thinned, query.late)
            for query in message.queries
        ),
    )
