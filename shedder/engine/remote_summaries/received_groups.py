"""Received groups: group keys of summaries, read once for all panes that share them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Column
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.engine.remote_summaries.wire_format import PaneSummary
from shedder.errors import BadBatch
from shedder.streams.batches import BatchLimits, decode_columns
from shedder.streams.frame import Frame
from shedder.streams.group_keys import GroupKeys


@dataclass(slots=True, eq=False)
class ReceivedGroups:
    """The groups of a pane, made anew from their keys.

    hashes: of each; 0, of the first alone: it stands for those that found no room. keys: an array
    per GROUP BY expression. Both empty without GROUP BY.
    """

    hashes: NDArray[np.uint64]
    keys: tuple[pa.Array[pa.Scalar[pa.DataType]], ...]
    _of: GroupKeys | None = None
    _ids: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def ids_among(self, keys: GroupKeys) -> NDArray[np.int64]:
        """A query's ids of these groups; int64 [groups]. Within one merge they stay what they are.

        Groups that find no room get the id of the others.
        """
        if self._of is not keys:
            ids = np.zeros(len(self.hashes), np.int64)
            first = int((self.hashes[:1] == 0).sum())  # The others, where they are there.
            if len(self.hashes) > first:
                columns = [column.slice(first) for column in self.keys]
                ids[first:] = keys.adopt(self.hashes[first:], columns)
            self._of, self._ids = keys, ids
        return self._ids


class GroupsReader:
    """Reads the groups of one query's panes: the same bytes, which most panes have, once."""

    def __init__(self, query: BoundQuery, limits: BatchLimits) -> None:
        """Know no groups yet; limits: on them and their bytes."""
        self._schema = _key_schema(query) if query.groups else None
        self.grouped = self._schema is not None
        self._limits = limits
        self._read: dict[tuple[bytes, bool], ReceivedGroups] = {}

    def read(self, summary: PaneSummary) -> ReceivedGroups:
        """The groups of a pane.

        Raises:
          BadBatch: they are damaged, or two of them are the same.
        """
        key = summary.groups, summary.others
        if key not in self._read:
            self._read[key] = self._of(summary)
        return self._read[key]

    def _of(self, summary: PaneSummary) -> ReceivedGroups:
        if self._schema is None:
            return ReceivedGroups(np.zeros(0, np.uint64), ())
        batch = decode_columns(summary.groups, self._schema, self._limits)
        columns = tuple(Column(column.name, column.type) for column in self._schema.columns)
        hashes = Frame(batch, "").keys(columns).copy()
        if summary.others:
            hashes[:1] = 0
        ordered = np.sort(hashes)  # Faster than looking for unique ones.
        if (ordered[1:] == ordered[:-1]).any():
            raise BadBatch("two of its groups are the same")
        return ReceivedGroups(hashes, tuple(batch.columns))


@lru_cache(maxsize=256)
def _key_schema(query: BoundQuery) -> StreamSchema:
    columns = []
    for at, group in enumerate(query.groups):
        assert group.type is not None, group
        columns.append(ColumnDefinition(f"k{at}", group.type, nullable=True))
    return replace(query.schema, name="the groups", columns=tuple(columns), time_column="")
