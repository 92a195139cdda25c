"""Lost tuples: tuples that were gone before a query read them, and the bounds that they widen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shedder.archive.metadata.position_gaps import PositionRange
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.text.durations import timestamp_text
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.missing_tuple_bounds import allow_for, of_the_others, without_bounds
from shedder.streams.basics import ColumnBasics

UNCOUNTED = "tuples may have been lost with damaged bytes of the log; their number is unknown"
_RETURNED = (
    "a repair lost commits of the catalog: tuples that they had removed may be counted again"
)
_BECAME = "were lost with damaged bytes of the log"
_REMOVED = "retention had removed tuples before {} when the query was registered"


@dataclass(slots=True)
class LostTuples:
    """Which positions, and which windows they may have belonged to. On the apply thread.

    Of a lost tuple it is known that it had come before the damage was found, so its event time,
    if any clock was to be believed, is before the limit of that moment; it may have been late.

    until: by positions [first, end) that are lost, that limit, in microseconds.
    uncounted_until_us: tuples of which no position tells may be lost, too, with times before this.
    returned_until_us: tuples that were deleted or retired may be there again, with times before
      this, since a repair of the catalog; read from the record of repairs at each start.
    removed_before_us: retention had removed tuples with times before this when it was registered.
    """

    until: dict[PositionRange, int] = field(default_factory=dict)
    uncounted_until_us: int | None = None
    returned_until_us: int | None = None
    removed_before_us: int | None = None

    def __bool__(self) -> bool:
        """Return whether anything is lost, or may be."""
        return self != LostTuples()

    def add(self, hole: PositionRange, limit_us: int) -> None:
        """These are lost."""
        self.until[hole] = limit_us

    def note_retired(self, before_us: int | None) -> None:
        """Retention had removed tuples with times before this; None: it has removed none."""
        self.removed_before_us = before_us

    def doubt(self, limit_us: int) -> None:
        """Note that an unknown number of tuples with times before limit_us may be lost."""
        self.uncounted_until_us = max(limit_us, self.uncounted_until_us or limit_us)

    def repaired(self, limit_us: int) -> None:
        """A repair lost commits that may have removed tuples."""
        self.returned_until_us = max(limit_us, self.returned_until_us or limit_us)

    def without(self, holes: Iterable[PositionRange]) -> list[PositionRange]:
        """What of these holes is not lost here: pieces of them, in order."""
        known = sorted(self.until)
        pieces = []
        for first, end in holes:
            at = first
            for begin, stop in known:
                if begin >= end or stop <= at:
                    continue
                if begin > at:
                    pieces.append((at, begin))
                at = stop
            if at < end:
                pieces.append((at, end))
        return pieces

    def within(self, start_us: int | None) -> int:
        """Return how many tuples a window that begins there may lack; None: an open window."""
        return sum(
            end - first
            for (first, end), until_us in self.until.items()
            if start_us is None or start_us < until_us
        )

    def doubted(self, start_us: int | None) -> str:
        """Return why no bound of a window that begins there holds; empty: its bounds hold.

        The window may lack an unknown number of tuples, or have tuples that were removed.
        """
        if _reaches(self.uncounted_until_us, start_us):
            return UNCOUNTED
        return _RETURNED if _reaches(self.returned_until_us, start_us) else ""

    def widen(self, query: BoundQuery, evidence: Evidence) -> Evidence:
        """The evidence with every interval wide enough for what was lost, whatever its values."""
        rows = self.within(evidence.start_us)
        if rows:
            anything = {column.name: ColumnBasics(rows, rows) for column in query.schema.columns}
            evidence = allow_for(query, evidence, rows, anything, became=_BECAME)
            evidence = replace(evidence, complete=False)
        if reason := self.doubted(evidence.start_us):
            missing = MissingGroups(None, 1.0, reason) if query.groups else evidence.missing
            evidence = replace(evidence, complete=False, missing=missing)
            evidence = without_bounds(evidence, reason, reason)
        return self._without_removed(query, evidence)

    def _without_removed(self, query: BoundQuery, evidence: Evidence) -> Evidence:
        """A window without a begin is of what was there; any other says where it begins."""
        if self.removed_before_us is None:
            return evidence
        reason = _REMOVED.format(timestamp_text(self.removed_before_us))
        if evidence.start_us is None:
            return replace(evidence, notes=(*evidence.notes, reason))
        if evidence.start_us >= self.removed_before_us:
            return evidence
        missing = MissingGroups(None, 1.0, reason) if query.groups else evidence.missing
        return of_the_others(replace(evidence, complete=False, missing=missing), reason)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        stretches = [[*hole, until_us] for hole, until_us in self.until.items()]
        return {
            "stretches": stretches,
            "uncounted_until_us": self.uncounted_until_us,
            "removed_before_us": self.removed_before_us,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of to_json."""
        until = {(first, end): until_us for first, end, until_us in state["stretches"]}
        return cls(
            until,
            uncounted_until_us=state["uncounted_until_us"],
            removed_before_us=state.get("removed_before_us"),
        )


def _reaches(until_us: int | None, start_us: int | None) -> bool:
    """Return whether a window that begins there (None: open) has times before an instant."""
    return until_us is not None and (start_us is None or start_us < until_us)
