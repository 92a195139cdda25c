"""Admission of summaries: the plans that builders need, checks, and the way into the log."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace

from shedder.archive.files.data_directory import FORMAT_BUILT, FORMAT_FOLLOW, FORMAT_PUSHES
from shedder.engine.admission.admission_control import Admission
from shedder.engine.allocation.negotiation import group_bytes
from shedder.engine.engine_state import EngineState
from shedder.engine.ingest.producer_sequences import check_part, check_producer
from shedder.engine.ingest.stream_intake import Intake
from shedder.engine.remote_summaries.summary_builder import Plans, QueryPlan
from shedder.engine.remote_summaries.validation import ROWS_MAX, ValidatedSummaries, checked
from shedder.engine.remote_summaries.wire_format import AT_LEAST_BYTES, NO_PRODUCERS, Summaries
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.synopsis_plan import sizes_to_json
from shedder.errors import BadTimestamp, BatchTooLarge, FailedPrecondition, Overloaded, ShedderError
from shedder.queries.answers.database_api import Receipt
from shedder.settings import Settings
from shedder.streams.push_parts import WHOLE, Part


def plans_of(core: EngineState, name: str) -> Plans:
    """The description from which a client builds a stream's summaries. From any thread.

    Raises:
      UnknownStream.
    """
    core.stream(name)
    return core.executor.call(lambda: plans_now(core, name)).result()


def plans_now(core: EngineState, name: str) -> Plans:
    """The same, on the apply thread.

    Raises:
      UnknownStream.
    """
    stream = core.stream(name)
    return Plans(
        replace(stream.schema, seed=0),  # Samples depend on it.
        tuple(_plan_of(core, each) for each in _standing(stream).values()),
        core.settings.future_us_max,
        core.limits,
        merge_bytes_max(core.settings),
    )


def merge_bytes_max(settings: Settings) -> int:
    """What summaries may have that come in parts: as much as may wait to be applied."""
    return max(settings.queue_bytes_max, settings.batch_bytes_max)


def too_large(size_bytes: int, limit: int) -> BatchTooLarge:
    """Return why summaries are not taken."""
    return BatchTooLarge(
        f"summaries of {size_bytes:,} bytes; the limit is {limit:,}. Fewer groups, or fewer panes "
        "at a time, are smaller"
    )


def append_summaries(
    core: EngineState,
    admission: Admission,
    name: str,
    data: bytes,
    *,
    producer: str,
    epoch: int,
    sequence: int | None,
    tuples_follow: bool = False,
    bytes_max: int | None = None,
    after: Mapping[str, tuple[int, int]] = NO_PRODUCERS,
    part: Part = WHOLE,
) -> Future[Receipt]:
    """Check summaries and hand them to the log; the receipt comes when they are durable.

    Args:
      core: with the stream. admission: to it. name: of it.
      data: bytes of summaries, not trusted.
      producer, epoch, sequence: as for a batch. Batches and summaries of one producer share the
        numbers.
      tuples_follow: they will be appended later, as `summarised`.
      bytes_max: they may have so many; None: as many as a batch.
      after: how far other producers must be, durably: epoch and last number, by name.
      part: their place in the push of this number.

    Raises:
      BadSetting: there is no such producer or part.
      FailedPrecondition: one of `after` is not: the directory is an older one than they were told.
      PlansChanged: they were built for other queries or sizes; get the plans, and build them again.
      BadBatch, BatchTooLarge, BadTimestamp: and nothing of them is kept.
      SequenceGap, StaleEpoch, Overloaded, DiskFull, StorageFailed, Draining: as for a batch. What
        finds no room counts as refused, without rows.
    """
    core.stream(name)
    rows, is_charged = 0, False
    try:
        check_producer(producer, epoch)
        check_part(part)
        for other, (reached, _) in after.items():
            check_producer(other, reached)
        limit = max(core.limits.bytes_max, AT_LEAST_BYTES) if bytes_max is None else bytes_max
        if len(data) > limit:
            raise too_large(len(data), limit)
        admission.admit_by_rate(name, 0, len(data))  # The number of tuples is not known yet.
        is_charged = True
        intake = admission.intake(name)
        _check_reached(intake, name, after)
        summaries = Summaries.from_bytes(data)
        rows = summaries.rows if summaries.rows <= ROWS_MAX else 0  # More is not believed.
        query_states = {q: it.state for q, it in _standing(core.stream(name)).items()}
        if intake.producers.has(producer, epoch, sequence, rows=rows, part=part):
            made = ValidatedSummaries(summaries)  # Its plans may be old.
        else:
            _check_times(core, summaries)
            made = checked(summaries, query_states, core.limits)
            core.store.allow(FORMAT_FOLLOW if tuples_follow else FORMAT_BUILT)
            if producer:
                core.allow(FORMAT_PUSHES)
        return intake.append_built(
            made,
            data,
            producer=producer,
            epoch=epoch,
            sequence=sequence,
            tuples_follow=tuples_follow,
            part=part,
        )
    except Overloaded as error:
        admission.turned_away(name, 0, len(data), error, final=True)
        raise
    except ShedderError:
        core.intakes[name].refuse(rows)
        if is_charged:
            admission.give_back_rate(name, 0, len(data))
        raise


def _check_reached(intake: Intake, name: str, after: Mapping[str, tuple[int, int]]) -> None:
    for producer, (epoch, sequence) in after.items():
        here = intake.producers.progress(producer)
        if here is None or (here.epoch, here.last_whole) < (epoch, sequence):
            has = 0 if here is None or here.epoch < epoch else here.last_whole + 1
            raise FailedPrecondition(
                f"producer {producer!r} has pushed {sequence + 1} batch(es) to stream "
                f"{name!r}, of which the service has {has} now: it came back with an older "
                "directory meanwhile; start this again as it was, and what is missing is sent again"
            )


def _standing(stream: Stream) -> dict[str, StandingQuery]:
    return {name: it for name, it in list(stream.queries.items()) if not it.failed}


def _plan_of(core: EngineState, standing_query: StandingQuery) -> QueryPlan:
    query_state = standing_query.state
    parts = query_state.plan.parts
    sizes = {
        aggregate: parts[at].size
        for aggregate, at in zip(
            query_state.query.aggregates, query_state.plan.answers, strict=True
        )
    }
    return QueryPlan(
        query_state.name,
        query_state.query.text,
        sizes_to_json(query_state.query, sizes, {}),
        query_state.levels,
        group_bytes(standing_query.granted, core.settings.group_bytes_max),
    )


def _check_times(core: EngineState, summaries: Summaries) -> None:
    limit_us = core.clock_us() + core.settings.future_us_max
    if summaries.newest_us > limit_us:
        raise BadTimestamp(
            f"newest_us is {summaries.newest_us}, {summaries.newest_us - limit_us:,} us further in "
            "the future than is believed; leave such tuples out"
        )
