"""Estimates of groups of which each is asked at a part of delta of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Estimates

Rows = NDArray[np.int64]


def at_parts(
    parts: NDArray[np.float64],
    confidence: float,
    ask: Callable[[Rows | None, float], Estimates],
) -> Estimates:
    """Ask each group at its part of delta; all intervals claim the whole of it.

    Args:
      parts: float64 [groups], in (0, 1], few different ones (`shown_delta`).
      confidence: that the intervals claim.
      ask: (groups, confidence) -> one estimate for each of these groups, in this order. None: all.
    """
    classes = np.unique(parts)
    if len(classes) <= 1:
        at = 1.0 - (1.0 - confidence) * (float(classes[0]) if len(classes) else 1.0)
        return _claiming(ask(None, at), confidence)
    rows = [np.flatnonzero(parts == part) for part in classes]
    columns = [
        ask(some, 1.0 - (1.0 - confidence) * float(part))
        for some, part in zip(rows, classes, strict=True)
    ]
    order = np.argsort(np.concatenate(rows))
    return _claiming(_joined(columns).take(order), confidence)


def _claiming(found: Estimates, confidence: float) -> Estimates:
    return replace(found, confidence=1.0 if found.confidence == 1.0 else confidence)


def _joined(columns: Sequence[Estimates]) -> Estimates:
    """The groups of all columns, one column after the other."""
    return Estimates(
        np.concatenate([each.value for each in columns]),
        np.concatenate([each.low for each in columns]),
        np.concatenate([each.high for each in columns]),
        np.concatenate([each.bound for each in columns]),
        np.concatenate([each.null for each in columns]),
        min(each.confidence for each in columns),
        max(columns, key=len).source,
        next((each.reason for each in columns if each.reason), ""),
    )
