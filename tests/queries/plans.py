"""Plans of one-time queries over an archive that answers with what a test gives."""

from __future__ import annotations

from collections.abc import Callable

from shedder.cql.statements.bound_query import BoundQuery
from shedder.errors import DeadlineExceeded
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.one_time.plan import KnownSources, PlanStep, ScanEstimate, Source, TimeRange
from shedder.queries.one_time.plan_execution import execute
from shedder.queries.one_time.source_choice import choose
from shedder.streams.live_sample import SampleView

PART = PlanStep(Source.PART, "until_error()")
REDUCED = PlanStep(Source.REDUCED, "uniform(0.5)")


def never() -> Evidence:
    raise AssertionError("the archive was read")


def too_slow() -> Evidence:
    raise DeadlineExceeded("no exact answer within 1 s")


class Archive:
    """Reads nothing. read: the look at a part. before: the looks that parts were read after."""

    def __init__(
        self, exactly: Callable[[], Evidence] = never, read: ScanEstimate | None = None
    ) -> None:
        self.exact = exactly
        self.before: list[ScanEstimate | None] = []
        self._read = read

    def part(self, before: ScanEstimate | None) -> ScanEstimate | None:
        self.before.append(before)
        return self._read


def answered(
    query: BoundQuery,
    view: SampleView | None,
    archive: Archive,
    part: PlanStep | None = None,
    stretch: TimeRange | None = None,
) -> Answer:
    """Choose a plan and execute it."""
    stretch = stretch or TimeRange()
    plan = choose(query, KnownSources(part=part, sample=view, stretch=stretch))
    return execute(query, plan, stretch, archive)
