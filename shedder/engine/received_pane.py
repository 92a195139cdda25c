"""A pane that was built elsewhere: checked, and given the group ids of this query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expression import Column
from shedder.cql.query import BoundQuery, StreamSchema
from shedder.cql.shares import LEVEL_MAX
from shedder.cql.statement import ColumnDefinition
from shedder.engine.pane import Pane, made_alike
from shedder.engine.plan import Kind, Part, Plan
from shedder.engine.summaries import PaneSummary, SegmentSummary
from shedder.errors import BadBatch
from shedder.streams import text_extremes, text_first_last
from shedder.streams.batches import BatchLimits, check_texts, decode_columns, encode
from shedder.streams.frame import Frame
from shedder.streams.group_keys import OTHERS, GroupKeys
from synopses.errors import SynopsisError

_TEXTS = {  # Arrow inside, which is checked before it is read.
    Kind.EXTREMES: text_extremes.IMAGE,
    Kind.TEXT_FIRST_LAST: text_first_last.IMAGE,
}


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedPane:
    """A summary's synopses over its own groups; hashes, keys: of these, () without GROUP BY."""

    pane: Pane
    hashes: NDArray[np.uint64]
    keys: tuple[pa.Array[Any], ...]

    def among(self, keys: GroupKeys | None) -> Pane:
        """The synopses over a query's group ids; what finds no room is among the others."""
        if keys is None:
            return self.pane
        ids = np.zeros(len(self.hashes), np.int64)
        real = np.flatnonzero(self.hashes != 0)
        if len(real):
            ids[real] = keys.adopt(self.hashes[real], [column.take(real) for column in self.keys])
        roomless = np.flatnonzero(ids == OTHERS)
        placed = np.flatnonzero(ids != OTHERS)
        if not len(roomless):
            return self.pane.scatter(ids, keys.size)
        whole = self.pane.select(placed).scatter(ids[placed], keys.size)
        return whole.merge(_as_one(self.pane, roomless))


def read_summary(
    summary: PaneSummary, query: BoundQuery, plan: Plan, limits: BatchLimits
) -> ReceivedPane:
    """What a summary holds, from whoever sent it.

    Args:
      summary: of one pane. query, plan: of the standing query that it names; open panes' plan.
      limits: on the groups and their bytes.

    Raises:
      BadBatch: it is damaged, was built for another plan, or contradicts itself.
    """
    try:
        return _read(summary, query, plan, limits)
    except SynopsisError as error:
        raise BadBatch(f"{_named(summary)}: {error}") from None
    except BadBatch as error:
        raise BadBatch(f"{_named(summary)}: {error}") from None


def groups_bytes(keys: tuple[pa.Array[Any], ...]) -> bytes:
    """The key values of groups, one array per GROUP BY expression, for a summary."""
    arrays = list(keys)
    return encode(pa.record_batch(arrays, names=[f"k{i}" for i in range(len(arrays))]))


def _read(summary: PaneSummary, query: BoundQuery, plan: Plan, limits: BatchLimits) -> ReceivedPane:
    if len(summary.images) != len(plan.parts):
        raise BadBatch(f"{len(summary.images)} synopses; the query has {len(plan.parts)}")
    if max(summary.thinned, default=0) > summary.tuples or summary.matching > summary.tuples:
        raise BadBatch(f"it says that more than its {summary.tuples} tuples were thinned or match")
    hashes, keys = _groups(summary, query, limits)
    groups = len(hashes) if query.groups else 1
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
    return ReceivedPane(pane, hashes, keys)


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


def _groups(
    summary: PaneSummary, query: BoundQuery, limits: BatchLimits
) -> tuple[NDArray[np.uint64], tuple[pa.Array[Any], ...]]:
    """The hashes of the groups, made again from their keys (0: the others), and the keys."""
    if not query.groups:
        return np.zeros(0, np.uint64), ()
    schema = _key_schema(query)
    batch = decode_columns(summary.groups, schema, limits)
    columns = tuple(Column(column.name, column.type) for column in schema.columns)
    hashes = Frame(batch, "").keys(columns).copy()
    if summary.others:
        hashes[:1] = 0
    ordered = np.sort(hashes)  # Faster than looking for unique ones.
    if (ordered[1:] == ordered[:-1]).any():
        raise BadBatch("two of its groups are the same")
    return hashes, tuple(batch.columns)


@lru_cache(maxsize=256)
def _key_schema(query: BoundQuery) -> StreamSchema:
    columns = []
    for at, group in enumerate(query.groups):
        assert group.type is not None, group
        columns.append(ColumnDefinition(f"k{at}", group.type, nullable=True))
    return replace(query.schema, name="the groups", columns=tuple(columns), time_column="")


def _as_one(pane: Pane, groups: NDArray[np.int64]) -> Pane:
    """Many groups as group 0, in log2(groups) merges."""
    while len(groups) > 1:
        half = (len(groups) + 1) // 2
        first, second = pane.select(groups[:half]), pane.select(groups[half:])
        pane, groups = first.merge(second), np.arange(half)
    return pane.select(groups)


def _named(summary: PaneSummary) -> str:
    return f"the summary of pane {summary.pane} of query {summary.query[:100]!r}"
