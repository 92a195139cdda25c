"""Ways in which operators learn that a row has left a time window."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from shedder.dataflow.expiry.negative_tuples import NegativeTuples
from shedder.dataflow.update_patterns import MONOTONIC, STRICT, WEAK, EdgeLabel
from shedder.dataflow.window_lifetimes import TimeWindow, WindowLifetimes, label_of


class Expiry(Enum):
    """Execution of expiry (Golab 2006, sections 2.3.3 and 3.5).

    PATTERN: each operator has the state that the update patterns of its inputs allow.
    NEGATIVE: windows hold their rows, and send each with weight -1 when it expires.
    DIRECT: each row has its expiry; states do not know the order of expiries, and are searched in
      each step.
    """

    PATTERN = "pattern"
    NEGATIVE = "negative"
    DIRECT = "direct"


def time_window(
    window: TimeWindow, expiry: Expiry
) -> tuple[tuple[WindowLifetimes | NegativeTuples, EdgeLabel], ...]:
    """Return the operators of a time window over a stream, each with the label of its output."""
    lifetimes, label = WindowLifetimes(window), label_of(window)
    if label == MONOTONIC:
        return ((lifetimes, label),)
    match expiry:
        case Expiry.PATTERN:
            return ((lifetimes, label),)
        case Expiry.DIRECT:
            return ((lifetimes, WEAK),)
        case Expiry.NEGATIVE:
            return ((lifetimes, WEAK), (NegativeTuples(), STRICT))
    assert_never(expiry)
