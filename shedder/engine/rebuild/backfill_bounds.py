"""Checks of a backfill's event times against those of its stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shedder.archive.metadata.catalog_entries import Run
from shedder.cql.text.durations import timestamp_text
from shedder.engine.engine_state import EngineState
from shedder.engine.standing_queries.stream_state import Stream
from shedder.errors import BeforeRetention, FailedPrecondition

Times = NDArray[np.int64]


def check_times(core: EngineState, stream: Stream, runs: Sequence[Run], *, overlap: bool) -> None:
    """Refuse runs that a stream cannot take in. On the apply thread.

    Args:
      stream: that is to have the runs. overlap: event times may be among those that it has.

    Raises:
      BeforeRetention: some are older than what it retains.
      FailedPrecondition: they overlap what it has.
    """
    store = core.store
    limits = [store.retention.retained_from_us(stream.id)]
    if stream.schema.retain_us is not None and stream.watermark_us is not None:
        limits.append(stream.watermark_us - stream.schema.retain_us)
    limit_us = max((each for each in limits if each is not None), default=None)
    oldest = min(runs, key=lambda run: run.low_us, default=None)
    if oldest is not None and limit_us is not None and oldest.low_us < limit_us:
        raise BeforeRetention(
            f"event times begin at {timestamp_text(oldest.low_us)}; the stream retains those from "
            f"{timestamp_text(limit_us)} on: leave older ones out"
        )
    if overlap:
        return
    there = store.backfills.live_times(stream.id)
    found = first_overlap(
        np.array([run.low_us for run in runs], np.int64),
        np.array([run.high_us for run in runs], np.int64),
        np.array([low_us for low_us, _, _ in there], np.int64),
        np.array([high_us for _, high_us, _ in there], np.int64),
    )
    if found is not None:
        run, (low_us, high_us, what) = runs[found[0]], there[found[1]]
        raise FailedPrecondition(
            f"event times {timestamp_text(run.low_us)} to {timestamp_text(run.high_us)} "
            f"overlap those of {what}, {timestamp_text(low_us)} to "
            f"{timestamp_text(high_us)}: leave them out, or say that they may overlap"
        )


def first_overlap(
    low_us: Times, high_us: Times, there_low_us: Times, there_high_us: Times
) -> tuple[int, int] | None:
    """The first stretch of times that meets one of others, and the one that it meets.

    Args:
      low_us, high_us: shape [stretches]; both ends belong to a stretch.
      there_low_us, there_high_us: shape [others], in any order; they may meet each other.

    Returns:
      The number of each, or None where no two meet. In time (stretches + others) log others.
    """
    if not low_us.size or not there_low_us.size:
        return None
    order = np.argsort(there_low_us, kind="stable")
    ends = there_high_us[order]
    latest = np.maximum.accumulate(ends)
    # Of those that begin before a stretch is over, whether one ends after it has begun.
    begun = np.searchsorted(there_low_us[order], high_us, "right")
    meets = (begun > 0) & (latest[begun - 1] >= low_us)
    if not meets.any():
        return None
    first = int(np.argmax(meets))
    return first, int(order[np.argmax(ends[: begun[first]] >= low_us[first])])
