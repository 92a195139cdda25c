"""External audit: answers lent to an auditor (Spark), and the verdicts that come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import structlog

from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.audit.audit_snapshot import AuditSnapshot, note, taken, unseen, without_rows
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.one_time_queries.executor import check_retained
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BadSetting, FailedPrecondition, ShedderError
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.audit import chooses
from shedder.queries.certification.certification import AuditSample, Certification, may_miss

LEASE_S = 1_800.0
"""Time that an auditor has, in seconds; until then no other audit takes the query."""

ANSWERS_MAX = 1_000
LEASE_BYTES_MAX = 48 << 20
"""Of the tables of answers lent together: with 16 KiB for the rest of each of ANSWERS_MAX answers,
they go in one message to a client."""
_REFUTED_MAX = 500  # characters

_log = structlog.get_logger("shedder.audit")


@dataclass(frozen=True, slots=True, eq=False)
class AuditTicket:
    """An answer of a standing query: as users were told it, and as a single miss refutes it."""

    id: str
    query: str
    published: Answer
    strict: Answer


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an auditor found, as of `AuditSample`; no values: nothing could be compared."""

    values: int
    missed: int
    fresh: int
    fresh_missed: int
    refuted: str = ""
    placed: bool | None = None

    def check(self) -> None:
        """Check that the counts agree with each other.

        Raises:
          BadSetting: the counts contradict each other.
        """
        if not (
            0 <= self.missed <= self.values
            and 0 <= self.fresh_missed <= self.fresh <= self.values
            and self.fresh_missed <= self.missed
        ):
            raise BadSetting(
                f"{self.missed} of {self.values} values missed, {self.fresh_missed} of "
                f"{self.fresh} fresh ones: no part may be larger than the whole"
            )
        places, misplaced = int(self.placed is not None), int(self.placed is False)
        if self.fresh + places > self.values or self.fresh_missed + misplaced > self.missed:
            raise BadSetting(
                f"{self.missed} of {self.values} values missed, {self.fresh_missed} of "
                f"{self.fresh} fresh ones, and placed is {self.placed}: the places of rows are "
                "one value, which is not fresh, and is missed if a row is in a wrong place"
            )

    def look(self, query: BoundQuery) -> AuditSample:
        """For the certification of this query."""
        return AuditSample(
            self.values,
            self.missed,
            self.fresh,
            self.fresh_missed,
            may_miss(query.confidence),
            self.refuted[:_REFUTED_MAX],
            chooses(query),
            self.placed,
        )


class AuditTickets:
    """Lends answers, and takes each verdict once. reported: verdicts so far. From any thread."""

    def __init__(self, core: EngineState, checkpoints: Checkpoints) -> None:
        self.reported = 0
        self._core = core
        self._checkpoints = checkpoints
        self._leases: dict[str, _Lease] = {}  # Of the apply thread.

    def lend(
        self,
        stream: str,
        *,
        answers: int,
        without_archive: bool = False,
        bytes_max: int = LEASE_BYTES_MAX,
    ) -> list[AuditTicket]:
        """Newest answers of a stream's queries, those first that were not looked at for longest.

        Args:
          stream: its name. answers: how many at most.
          without_archive: the truth comes from elsewhere, so that tuples may have come as
            summaries; only of windows that have closed.
          bytes_max: of all tables. What has no room left comes first the next time; an answer that
            has none with its wider one is lent without that, and alone never.

        Raises:
          UnknownStream. BadSetting: too few or too many answers.
        """
        if not 1 <= answers <= ANSWERS_MAX:
            raise BadSetting(f"{answers} answers are asked for; it must be in 1 to {ANSWERS_MAX}")
        of = self._core.stream(stream)
        tickets: list[AuditTicket] = []
        room_bytes = bytes_max
        waiting = list(of.queries.values())  # At once: others may come and go.
        for standing_query in sorted(waiting, key=lambda each: each.audits.audited_s):
            if len(tickets) == answers:
                break
            # One by one, so that ingest goes on between them.
            found, size_bytes = self._core.executor.call(
                partial(
                    self._take,
                    of,
                    standing_query,
                    without_archive=without_archive,
                    room_bytes=room_bytes,
                    first=not tickets,
                )
            ).result()
            if found is not None:
                tickets.append(found)
                room_bytes -= size_bytes
            elif size_bytes:
                break
        return tickets

    def report(self, id: str, found: AuditReport) -> Certification:  # noqa: A002  (as on the wire)
        """Note what came of one answer; the query's certification after that.

        Raises:
          FailedPrecondition: nothing is lent under this name: it was reported, or took too long,
            or the service was started again, or the query is gone; or tuples that it was to be
            compared with are.
          BadSetting: the counts contradict each other.
        """
        found.check()
        return self._core.executor.call(partial(self._note, id, found)).result()

    def _take(
        self,
        stream: Stream,
        standing_query: StandingQuery,
        *,
        without_archive: bool,
        room_bytes: int,
        first: bool,
    ) -> tuple[AuditTicket | None, int]:
        """An answer, if there is one that has room, and the bytes of its tables.

        No answer, but bytes: others have left it no room.
        """
        now_s = self._core.machine.monotonic_s()
        self._leases = {key: each for key, each in self._leases.items() if each.until_s > now_s}
        found = unseen(self._core, stream, standing_query, without_archive=without_archive)
        if found is None:
            return None, 0
        seen = standing_query.audits.audited
        moment = taken(stream, standing_query, *found)
        size_bytes = _size_bytes(moment.answer) + _size_bytes(moment.strict)
        if size_bytes > room_bytes:
            if not first:
                standing_query.audits.note_audited(seen)
                return None, size_bytes
            moment = replace(moment, strict=without_rows(moment.answer))
            size_bytes = _size_bytes(moment.answer) + _size_bytes(moment.strict)
            if size_bytes > room_bytes:
                _log.warning("too_large_to_lend", query=standing_query.state.name, bytes=size_bytes)
                return None, 0
        standing_query.audits.note_look(now_s)
        standing_query.audits.reserve(now_s + LEASE_S)
        name = f"{self._core.machine.random_bits(64):016x}"
        self._leases[name] = _Lease(
            stream, moment, standing_query.audits.reserved_to_s, not without_archive
        )
        return AuditTicket(
            name, standing_query.state.name, moment.answer, moment.strict
        ), size_bytes

    def _note(self, name: str, found: AuditReport) -> Certification:
        lease = self._leases.pop(name, None)
        if lease is None or not lease.stands(self._core.machine.monotonic_s()):
            raise FailedPrecondition(
                f"no answer is lent as {name[:40]!r}: it was reported, or is {LEASE_S / 60:.0f} "
                "minutes old, or the query was dropped, or the service started anew; lend again"
            )
        standing_query, query = lease.moment.standing_query, lease.moment.standing_query.state.query
        standing_query.audits.release()
        shows_nothing = chooses(query) and not lease.moment.shown
        if found.values or found.refuted or shows_nothing:
            lease.check_tuples(self._core)
            note(self._checkpoints, lease.moment, found.look(query))
            self.reported += 1
        return standing_query.audits.certification


def _size_bytes(answer: Answer) -> int:
    """Of its table, as it is written."""
    batches = answer.table.to_batches()
    return sum(pa.ipc.get_record_batch_size(each) for each in batches) + int(
        answer.table.schema.serialize().size
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Lease:
    """archived: whether the archive has the tuples that the answer is compared with."""

    stream: Stream
    moment: AuditSnapshot
    until_s: float
    archived: bool

    def check_tuples(self, core: EngineState) -> None:
        """Check that the archive had all tuples while the auditor read it.

        Raises:
          FailedPrecondition: some are deleted, or older than what is retained.
        """
        if not self.archived:
            return
        gone = bool(core.store.deletions.entries(self.stream.id))
        try:
            check_retained(core, self.stream, self.moment.span)
        except ShedderError:
            gone = True
        if gone:
            raise FailedPrecondition(
                f"tuples that an answer of {self.moment.standing_query.state.name!r} is of were "
                "deleted while it was looked at; it does not count"
            )

    def stands(self, now_s: float) -> bool:
        """Return whether it is in time, and its query is still there."""
        standing_query = self.moment.standing_query
        there = self.stream.queries.get(standing_query.state.name)
        return now_s < self.until_s and there is standing_query
