"""Answers on the wire: every field of an Answer is a field of its message."""

from __future__ import annotations

from dataclasses import asdict, fields

from shedder.queries.answers.answer import Answer, ArchiveRead, InputProgress, MissingGroups
from shedder.queries.answers.completeness import Completeness
from shedder.streams.ipc import table_bytes
from shedder.v1 import query_pb2
from shedder.wire import tables
from synopses.model.estimate import Bound, Estimate


def answer_to_wire(answer: Answer) -> query_pb2.Answer:
    """The answer as its message."""
    missing, complete = answer.missing, answer.completeness
    return query_pb2.Answer(
        table=table_bytes(answer.table),
        query=answer.query,
        start_us=answer.start_us,
        end_us=answer.end_us,
        resolution_us=answer.resolution_us,
        watermark_us=answer.watermark_us,
        position=answer.position,
        late=answer.late,
        complete=answer.complete,
        confidence=answer.confidence,
        thinning=answer.thinning,
        archive_share_read=answer.archive_share_read,
        sources=answer.sources,
        missing=None if missing is None else _missing_to_wire(missing),
        others=answer.others,
        notes=answer.notes,
        missed=answer.missed,
        elapsed_ms=answer.elapsed_ms,
        certified=answer.certified,
        cut=answer.cut,
        archive=None if answer.archive is None else query_pb2.ArchiveRead(**asdict(answer.archive)),
        inputs=[query_pb2.Answer.Input(**asdict(each)) for each in answer.inputs],
        resume=answer.resume,
        completeness=None if complete is None else _completeness_to_wire(complete),
    )


def answer_from_wire(message: query_pb2.Answer) -> Answer:
    """The answer in a message.

    Raises:
      CorruptData: its table is damaged.
    """
    return Answer(
        table=tables.from_bytes(message.table),
        query=message.query,
        start_us=message.start_us if message.HasField("start_us") else None,
        end_us=message.end_us if message.HasField("end_us") else None,
        resolution_us=message.resolution_us,
        watermark_us=message.watermark_us if message.HasField("watermark_us") else None,
        position=message.position,
        late=message.late,
        complete=message.complete,
        confidence=message.confidence,
        thinning=message.thinning,
        archive_share_read=message.archive_share_read,
        sources=tuple(message.sources),
        missing=_missing_from_wire(message.missing) if message.HasField("missing") else None,
        others=message.others if message.HasField("others") else None,
        notes=tuple(message.notes),
        missed=message.missed,
        elapsed_ms=message.elapsed_ms,
        certified=message.certified if message.HasField("certified") else None,
        cut=message.cut,
        archive=_archive_from_wire(message.archive) if message.HasField("archive") else None,
        inputs=tuple(map(_input_from_wire, message.inputs)),
        resume=message.resume if message.HasField("resume") else None,
        completeness=_completeness_from_wire(message.completeness)
        if message.HasField("completeness")
        else None,
    )


def _input_from_wire(message: query_pb2.Answer.Input) -> InputProgress:
    return InputProgress(
        message.stream,
        message.alias,
        message.position,
        message.as_of_us if message.HasField("as_of_us") else None,
        late=message.late,
        dropped=message.dropped,
        lost=message.lost,
    )


def _completeness_to_wire(it: Completeness) -> query_pb2.Answer.Completeness:
    rows, keys = (
        query_pb2.Answer.Count(**{**asdict(each), "bound": each.bound.word})
        for each in (it.rows, it.keys)
    )
    return query_pb2.Answer.Completeness(
        columns=it.columns,
        share=it.share,
        start_us=it.start_us,
        end_us=it.end_us,
        shown_rows=it.shown_rows,
        shown_keys=it.shown_keys,
        rows=rows,
        keys=keys,
        reason=it.reason,
    )


def _completeness_from_wire(message: query_pb2.Answer.Completeness) -> Completeness:
    rows, keys = (
        Estimate(
            each.value, each.low, each.high, each.confidence, Bound[each.bound.upper()], each.source
        )
        for each in (message.rows, message.keys)
    )
    return Completeness(
        tuple(message.columns),
        message.share,
        message.start_us if message.HasField("start_us") else None,
        message.end_us if message.HasField("end_us") else None,
        message.shown_rows,
        message.shown_keys,
        rows,
        keys,
        message.reason,
    )


def _archive_from_wire(message: query_pb2.ArchiveRead) -> ArchiveRead:
    return ArchiveRead(**{part.name: getattr(message, part.name) for part in fields(ArchiveRead)})


def _missing_to_wire(missing: MissingGroups) -> query_pb2.Answer.MissingGroups:
    return query_pb2.Answer.MissingGroups(
        weight_max=missing.weight_max, confidence=missing.confidence, reason=missing.reason
    )


def _missing_from_wire(message: query_pb2.Answer.MissingGroups) -> MissingGroups:
    weight = message.weight_max if message.HasField("weight_max") else None
    return MissingGroups(weight, message.confidence, message.reason)
