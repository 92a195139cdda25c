"""Checkpoints: what a restart begins with, so that it need not replay the whole log.

A checkpoint is the closed panes, the open ones, levels in force, samples, watermarks, producers'
sequences, and the log's sequence up to which all of these are complete. It is one catalog
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from shedder.archive.store import Store
from shedder.engine.producers import Progress
from shedder.engine.published import Published
from shedder.engine.standing import Standing
from shedder.engine.stream import Stream

_ALL_TIME = (-(1 << 63), (1 << 63) - 1)


def write_checkpoint(
    store: Store,
    streams: Mapping[str, Stream],
    producers: Mapping[str, Mapping[str, Progress]],
    sequence: int,
    also: Callable[[], None] | None = None,
) -> None:
    """Store all live state as of a log sequence, in one transaction.

    Producers may be ahead of the applied state (they are numbered when they are durable); replay
    brings the rest there too, and a producer's progress never goes back.

    Args:
      store: whose catalog it goes to.
      streams, producers: the state, by stream name.
      sequence: every record of the log below it has been applied.
      also: other changes of the catalog, in the same transaction.

    Raises:
      DiskFull, StorageFailed: nothing was stored; the next checkpoint stores all of it.
    """
    parts: dict[str, bytes] = {}
    stored: list[tuple[Standing, list[int]]] = []
    with store.catalog.transaction():
        if also is not None:
            also()
        for name, stream in streams.items():
            parts[f"stream/{stream.id}"] = _stream_state(stream, producers[name])
            parts[f"sample/{stream.id}"] = stream.sample.to_bytes()
            for published in stream.queries.values():
                if not published.failed:  # What broke may be in its panes.
                    stored.append((published.standing, _store_panes(store, published.standing)))
                parts[f"query/{published.standing.name}"] = _query_state(published)
                if published.standing.keys is not None:
                    keys = published.standing.keys.to_bytes()
                    parts[f"groups/{published.standing.name}"] = keys
        store.catalog.write_checkpoint(sequence, parts)
    for standing, panes in stored:
        standing.mark_stored(panes)


def _store_panes(store: Store, standing: Standing) -> list[int]:
    """Each closed pane once; those that no window needs any more go. Returns the stored ones."""
    width = standing.grid.width_us
    if width is None:
        return []
    fresh = standing.unstored()
    for pane in fresh:
        store.catalog.put_pane(standing.name, pane * width, standing.pane_bytes(pane))
    if standing.dropped_before is not None:
        store.catalog.drop_panes(standing.name, before_us=standing.dropped_before * width)
    return fresh


def _stream_state(stream: Stream, producers: Mapping[str, Progress]) -> bytes:
    state = {
        "position": stream.position,
        "applied": stream.applied,
        "late": stream.late,
        "watermark_us": stream.watermark_us,
        "producers": {name: asdict(progress) for name, progress in producers.items()},
    }
    return json.dumps(state).encode()


def _query_state(published: Published) -> bytes:
    """Counts as JSON in the schema's metadata; the open panes as rows."""
    standing = published.standing
    state = {
        "read": standing.timely,
        "late": standing.late,
        "levels": standing.levels,
        "thinned": standing.thinned,
        "late_by_pane": [[pane, count] for pane, count in standing.late_by_pane.items()],
        "late_beyond": standing.late_beyond,
        "emitted_to": published.emitted_to,
        "failed": published.failed,
    }
    panes = [] if published.failed else standing.open_panes()
    fields: list[pa.Field[Any]] = [pa.field("pane", pa.int64()), pa.field("data", pa.binary())]
    schema = pa.schema(fields, metadata={"state": json.dumps(state)})
    blobs = [standing.pane_bytes(pane) for pane in panes]
    table = pa.table([pa.array(panes, pa.int64()), pa.array(blobs, pa.binary())], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def restore_stream(stream: Stream, data: bytes) -> dict[str, Progress]:
    """Set a stream's counters from its part; returns how far its producers were."""
    state = json.loads(data)
    stream.position = state["position"]
    stream.applied = state["applied"]
    stream.late = state["late"]
    stream.watermark.value_us = state["watermark_us"]
    return {name: Progress(**progress) for name, progress in state["producers"].items()}


def restore_query(store: Store, published: Published, parts: Mapping[str, bytes]) -> None:
    """Set a standing query's groups, panes and counters from the pane store and its parts."""
    standing = published.standing
    data, groups = (parts.get(f"{kind}/{standing.name}") for kind in ("query", "groups"))
    state: dict[str, Any] = {}
    panes = []
    if data is not None:
        table = pa.ipc.open_stream(data).read_all()
        state, panes = json.loads(table.schema.metadata[b"state"]), table.to_pylist()
        standing.timely, standing.late = state["read"], state["late"]
        if "levels" in state:  # Written since queries can be thinned.
            standing.set_levels(state["levels"])
            standing.thinned = list(state["thinned"])
        standing.late_by_pane = dict(state["late_by_pane"])
        beyond = state["late_beyond"]
        standing.late_beyond = None if beyond is None else (beyond[0], beyond[1])
        published.emitted_to = state["emitted_to"]
        published.failed = state["failed"]
    if published.failed:
        return
    if standing.keys is not None and groups is not None:
        standing.keys.restore(groups)
    width = standing.grid.width_us
    if width is not None:
        for pane in store.catalog.panes(standing.name, *_ALL_TIME):
            standing.adopt(pane.start_us // width, pane.blob, closed=True)
    for row in panes:
        standing.adopt(row["pane"], row["data"], closed=False)
