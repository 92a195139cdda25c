"""A pane that was built elsewhere: checked, and given the group ids of this query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.shares import LEVEL_MAX
from shedder.engine.pane import Pane, made_alike
from shedder.engine.plan import Kind, Part, Plan
from shedder.engine.received_groups import GroupsReader, ReceivedGroups
from shedder.engine.summaries import PaneSummary, SegmentSummary
from shedder.errors import BadBatch
from shedder.streams import text_extremes, text_first_last
from shedder.streams.batches import check_texts, encode
from shedder.streams.group_keys import OTHERS, GroupKeys
from synopses.errors import SynopsisError

_TEXTS = {  # Arrow inside, which is checked before it is read.
    Kind.EXTREMES: text_extremes.IMAGE,
    Kind.TEXT_FIRST_LAST: text_first_last.IMAGE,
}


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedPane:
    """A summary's synopses over its own groups, and which these are."""

    pane: Pane
    groups: ReceivedGroups

    def among(self, keys: GroupKeys | None) -> Pane:
        """The synopses over a query's group ids; what finds no room is among the others."""
        if keys is None:
            return self.pane
        ids = self.groups.ids_among(keys)
        roomless = np.flatnonzero(ids == OTHERS)
        placed = np.flatnonzero(ids != OTHERS)
        if not len(roomless):
            return self.pane.scatter(ids, keys.size)
        whole = self.pane.select(placed).scatter(ids[placed], keys.size)
        return whole.merge(_as_one(self.pane, roomless))


def read_summary(summary: PaneSummary, plan: Plan, groups: GroupsReader) -> ReceivedPane:
    """What a summary holds, from whoever sent it.

    Args:
      summary: of one pane. plan: of open panes of the standing query that it names.
      groups: reads that query's.

    Raises:
      BadBatch: it is damaged, was built for another plan, or contradicts itself.
    """
    try:
        return _read(summary, plan, groups)
    except SynopsisError as error:
        raise BadBatch(f"{_named(summary)}: {error}") from None
    except BadBatch as error:
        raise BadBatch(f"{_named(summary)}: {error}") from None


def groups_bytes(keys: tuple[pa.Array[Any], ...]) -> bytes:
    """The key values of groups, one array per GROUP BY expression, for a summary."""
    arrays = list(keys)
    return encode(pa.record_batch(arrays, names=[f"k{i}" for i in range(len(arrays))]))


def _read(summary: PaneSummary, plan: Plan, reader: GroupsReader) -> ReceivedPane:
    if len(summary.images) != len(plan.parts):
        raise BadBatch(f"{len(summary.images)} synopses; the query has {len(plan.parts)}")
    if max(summary.thinned, default=0) > summary.tuples or summary.matching > summary.tuples:
        raise BadBatch(f"it says that more than its {summary.tuples} tuples were thinned or match")
    received = reader.read(summary)
    groups = len(received.hashes) if reader.grouped else 1
    for part, image in zip(plan.parts, summary.images, strict=True):
        _check_text(part, image)
    pane = Pane.from_bytes(plan, summary.images)
    for at, part in enumerate(plan.parts):
        pane.parts[at] = made_alike(part, pane.parts[at], groups, thinned=False)
    for segment in summary.segments:
        _add_segment(pane, plan, segment, groups)
    counted = int(pane.counts.sum())
    expected = summary.matching - (summary.thinned[0] if summary.segments else 0)
    if counted > summary.matching or (not summary.segments and counted != expected):
        raise BadBatch(f"it counts {counted} tuples and says that {summary.matching} match")
    return ReceivedPane(pane, received)


def _add_segment(pane: Pane, plan: Plan, segment: SegmentSummary, groups: int) -> None:
    if segment.part >= len(plan.parts) or segment.level > LEVEL_MAX:
        raise BadBatch(f"synopsis {segment.part} at level {segment.level} does not exist")
    part, place = plan.parts[segment.part], (segment.part, segment.level)
    if place in pane.segments or segment.basics[0] < segment.basics[1]:  # type: ignore[operator]
        raise BadBatch(f"the segment of synopsis {segment.part} contradicts the others")
    _check_text(part, segment.image)
    pane.adopt_segment(place, segment.image, segment.basics, segment.shape or None)
    held = pane.segments[place]
    held.synopsis = made_alike(part, held.synopsis, groups, thinned=True)
    if held.shape is not None and held.shape.groups > groups:
        raise BadBatch(f"the shape of synopsis {segment.part} has {held.shape.groups} groups")


def _check_text(part: Part, image: bytes) -> None:
    if part.kind in _TEXTS:
        check_texts(image, _TEXTS[part.kind])


def _as_one(pane: Pane, groups: NDArray[np.int64]) -> Pane:
    """Many groups as group 0, in log2(groups) merges."""
    while len(groups) > 1:
        half = (len(groups) + 1) // 2
        first, second = pane.select(groups[:half]), pane.select(groups[half:])
        pane, groups = first.merge(second), np.arange(half)
    return pane.select(groups)


def _named(summary: PaneSummary) -> str:
    return f"the summary of pane {summary.pane} of query {summary.query[:100]!r}"
