"""A question to a stream's archive and tail at one position."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.archive.store.snapshot import Snapshot
from shedder.archive.tasks.deadline import Deadline
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.one_time.plan import TimeRange


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveQuestion:
    """What every source of an answer is given.

    snapshot: runs and log of the stream; the asker releases it.
    stretch: what of the stream is asked for.
    """

    query: BoundQuery
    snapshot: Snapshot
    stretch: TimeRange
    deadline: Deadline
