"""Samples of the stream that asking.py defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from shedder.streams.frame import Frame
from shedder.streams.live_sample import SampleView, StreamSample
from tests.queries.asking import SCHEMA


def view_of(data: pa.RecordBatch, size: int, seed: int = 0, **kinds: Sequence[str]) -> SampleView:
    """Return a sample of one batch, which begins at position 0."""
    sample = StreamSample(replace(SCHEMA, seed=seed), rows=size, **kinds)
    sample.update(0, Frame(data, SCHEMA.time_column))
    return sample.view()
