"""Pane codec: synopses, segments and group keys as bytes that can be read by themselves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.panes.diagonal_ranges import DiagonalRanges
from shedder.engine.panes.overflow_group import among_others
from shedder.engine.panes.pane import Pane
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.streams.group_keys import GroupKeys
from shedder.streams.ipc import table_bytes

# Metadata of a stored pane: part, level and basics of t0, t1, ...
# and their diagonal ranges.
_SEGMENTS = b"segments"
_DIAGONALS = b"diagonals"


def pane_to_bytes(held: Pane, keys: GroupKeys | None) -> bytes:
    """Arrow IPC of one row; keys: of the query's groups, None without GROUP BY."""
    columns: dict[str, pa.Array[Any]] = {}
    if keys is not None:
        ids = held.groups_here
        values = keys.keys(ids)
        table = pa.table(list(values), names=[f"k{i}" for i in range(len(values))])
        columns["hashes"] = pa.array([keys.hashes(ids).tobytes()], pa.binary())
        columns["keys"] = pa.array([table_bytes(table)], pa.binary())
        held = held.select(ids)
    for index, data in enumerate(held.to_bytes()):
        columns[f"s{index}"] = pa.array([data], pa.binary())
    segments, diagonals = [], []
    for index, ((part, level), segment) in enumerate(sorted(held.segments.items())):
        columns[f"t{index}"] = pa.array([segment.synopsis.to_bytes()], pa.binary())
        if segment.shape is not None:
            columns[f"u{index}"] = pa.array([segment.shape.to_bytes()], pa.binary())
        segments.append([part, level, *segment.basics])
        known = segment.diagonals
        diagonals.append(None if known is None else known.to_json())
    metadata = {}
    if segments:
        metadata[_SEGMENTS] = json.dumps(segments)
    if any(diagonals):
        metadata[_DIAGONALS] = json.dumps(diagonals)
    return table_bytes(pa.table(columns, metadata=metadata or None))


def pane_from_bytes(data: bytes, plan: SynopsisPlan, keys: GroupKeys | None) -> Pane:
    """What pane_to_bytes wrote for the same plan, with the ids of its groups among `keys`."""
    row = pa.ipc.open_stream(data).read_all()
    held = Pane.from_bytes(plan, [row[f"s{i}"][0].as_py() for i in range(len(plan.parts))])
    metadata = row.schema.metadata or {}
    segments = json.loads(metadata.get(_SEGMENTS, b"[]"))
    diagonals = json.loads(metadata.get(_DIAGONALS, b"[]")) or [None] * len(segments)
    each = zip(segments, diagonals, strict=True)
    for index, ((part, level, *basics), known) in enumerate(each):
        shape = row[f"u{index}"][0].as_py() if f"u{index}" in row.column_names else None
        on_axes = None if known is None else DiagonalRanges.from_json(known)
        data = row[f"t{index}"][0].as_py()
        held.adopt_segment((part, level), data, basics, shape, on_axes)
    if keys is None:
        return held
    hashes = np.frombuffer(row["hashes"][0].as_py(), np.uint64)
    values = pa.ipc.open_stream(row["keys"][0].as_py()).read_all()
    return among_others(held, _ids(keys, hashes, values), keys.size)


def _ids(keys: GroupKeys, hashes: NDArray[np.uint64], values: pa.Table) -> NDArray[np.int64]:
    ids = np.zeros(len(hashes), np.int64)
    real = np.flatnonzero(hashes != 0)  # The others row has hash 0 and keeps id 0.
    if len(real):
        columns = [c.combine_chunks().take(real) for c in values.columns]
        ids[real] = keys.adopt(hashes[real], columns)
    return ids
