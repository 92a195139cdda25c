"""Received panes: checked, and mapped to the group ids of this query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.panes.level_segment import Segment
from shedder.engine.panes.overflow_group import among_others
from shedder.engine.panes.pane import Pane
from shedder.engine.remote_summaries.received_groups import GroupsReader, ReceivedGroups
from shedder.engine.remote_summaries.synopsis_decoding import Seen, images_of
from shedder.engine.remote_summaries.wire_format import PaneSummary, SegmentSummary
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.errors import BadBatch
from shedder.streams.batches import BatchLimits, encode
from shedder.streams.group_keys import GroupKeys
from synopses.model.errors import SynopsisError
from synopses.moments.covariance import GroupedCrossMoments


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedPane:
    """A summary's synopses over its own groups, and which these are."""

    pane: Pane
    groups: ReceivedGroups

    def among(self, keys: GroupKeys | None) -> Pane:
        """The synopses over a query's group ids; what finds no room is among the others."""
        if keys is None:
            return self.pane
        return among_others(self.pane, self.groups.ids_among(keys), keys.size)


class PaneReader:
    """Reads the summaries of one query's panes, whatever process sent them."""

    def __init__(
        self, query: BoundQuery, plan: SynopsisPlan, limits: BatchLimits, seen: Seen | None = None
    ) -> None:
        """Read panes of this query.

        Args:
          query: whose they are. plan: of those of its panes that are open.
          limits: on groups and their bytes.
          seen: what readers of the same summaries' other queries have read.
        """
        self._seen: Seen = {} if seen is None else seen
        self._groups = GroupsReader(query, limits)
        self._plan = plan
        self._parts = [images_of(part) for part in plan.parts]

    def read(self, summary: PaneSummary) -> ReceivedPane:
        """What the summary of a pane holds.

        Raises:
          BadBatch: it is damaged, was built for another plan, or contradicts itself.
        """
        try:
            return self._read(summary)
        except (BadBatch, SynopsisError) as error:
            named = f"the summary of pane {summary.pane} of query {summary.query[:100]!r}"
            raise BadBatch(f"{named}: {error}") from None

    def _read(self, summary: PaneSummary) -> ReceivedPane:
        parts, images = self._parts, summary.images
        if len(images) != len(parts):
            raise BadBatch(f"{len(images)} synopses; the query has {len(parts)}")
        if max(summary.thinned, default=0) > summary.tuples or summary.matching > summary.tuples:
            raise BadBatch(
                f"it says that more than its {summary.tuples} tuples were thinned or match"
            )
        received = self._groups.read(summary)
        groups = len(received.hashes) if self._groups.grouped else 1
        read = [
            part.read_once(image, groups, self._seen)
            for part, image in zip(parts, images, strict=True)
        ]
        pane = Pane(self._plan, 0, parts=read)
        for segment in summary.segments:
            self._add_segment(pane, segment, groups, summary.matching)
        counts = pane.counts
        counted = int(counts[0] if groups == 1 else counts.sum())
        expected = summary.matching - (summary.thinned[0] if summary.segments else 0)
        if counted > summary.matching or (not summary.segments and counted != expected):
            raise BadBatch(f"it counts {counted} tuples and says that {summary.matching} match")
        return ReceivedPane(pane, received)

    def _add_segment(self, pane: Pane, segment: SegmentSummary, groups: int, matching: int) -> None:
        if segment.part >= len(self._parts) or segment.level > LEVEL_MAX:
            raise BadBatch(f"synopsis {segment.part} at level {segment.level} does not exist")
        place, basics = (segment.part, segment.level), segment.basics
        if place in pane.segments or not basics[1] <= basics[0] <= matching:  # type: ignore[operator]
            raise BadBatch(
                f"the segment of synopsis {segment.part} contradicts the others: it is there "
                f"twice, or read {basics[1]:,} of {basics[0]:,} values where {matching:,} match"
            )
        images = images_of(self._plan.parts[segment.part], thinned=True)
        synopsis = images.read(segment.image, groups)
        shape = GroupedCrossMoments.from_bytes(segment.shape) if segment.shape else None
        if shape is not None and shape.groups > groups:
            raise BadBatch(f"the shape of synopsis {segment.part} has {shape.groups} groups")
        pane.segments[place] = Segment(synopsis, *basics, shape=shape)  # type: ignore[arg-type]


def groups_bytes(keys: tuple[pa.Array[Any], ...]) -> bytes:
    """The key values of groups, one array per GROUP BY expression, for a summary."""
    arrays = list(keys)
    return encode(pa.record_batch(arrays, names=[f"k{i}" for i in range(len(arrays))]))
