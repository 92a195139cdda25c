"""Samples of the stream that asking.py defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.from_strata import evidence_from_strata
from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from tests.queries.asking import ARROW, SCHEMA


def view_of(data: pa.RecordBatch, size: int, seed: int = 0, **kinds: Sequence[str]) -> SampleView:
    """Return a sample of one batch, which begins at position 0."""
    sample = StreamSample(replace(SCHEMA, seed=seed), rows=size, **kinds)
    sample.update(0, Frame(data, SCHEMA.time_column))
    return sample.view()


def stream_of(counts: Sequence[int], seed: int = 5) -> pa.RecordBatch:
    """As many tuples of each client as are given, in random order."""
    clients = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(clients)
    rows = len(clients)
    columns = [
        pa.array(np.arange(rows), pa.timestamp("us")),
        pa.nulls(rows, pa.string()),
        pa.array(clients),
        pa.array(clients % 7 + np.arange(rows) % 5, pa.float64()),
        pa.nulls(rows, pa.bool_()),
        pa.nulls(rows, pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def evidence_from_parts(query: BoundQuery, data: pa.RecordBatch, read: int, seed: int) -> Evidence:
    """Two parts of a stream, of which the second is read at three times the share of the first."""
    half = data.num_rows // 2
    parts = [data.slice(0, half), data.slice(half)]
    views = [
        view_of(part, read * each // 4, seed) for part, each in zip(parts, (1, 3), strict=True)
    ]
    return evidence_from_strata(query, views, np.random.default_rng(seed))
