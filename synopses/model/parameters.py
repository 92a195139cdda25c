"""Parameters as summaries are built with them: whole numbers in their range, and flags."""

from __future__ import annotations

from typing import Final

import numpy as np

from synopses.model.errors import BadParameter

INT64_MAX: Final = (1 << 63) - 1
WORD_MAX: Final = (1 << 64) - 1
COUNTED_MAX: Final = 1 << 62  # Largest stored count: two such counts still add up.
_GROUPS_MAX: Final = (1 << 31) - 1  # Ids are int32.


def as_whole(name: str, value: object, least: int, most: int, *, expected: str = "") -> int:
    """The value, which is a whole number from least to most.

    Args:
      name: what its user calls it. expected: what would be right, where a range does not say it.

    Raises:
      BadParameter: it is none, a flag or a float among them, or outside.
    """
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:  # type: ignore[operator]
        raise BadParameter(name, value, expected or f"{least} to {most}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def as_groups(value: object) -> int:
    """Return how many groups a summary begins with.

    Raises:
      BadParameter: no number of groups.
    """
    return as_whole("groups", value, 0, _GROUPS_MAX)


def as_flag(name: str, value: object) -> bool:
    """The value, which is true or false.

    Raises:
      BadParameter: it is something else; 1 and "no" would be taken for true.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise BadParameter(name, value, "True or False")
    return bool(value)


def as_confidence(confidence: float) -> float:
    """The confidence, which an interval can have.

    Raises:
      BadParameter: it is not inside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise BadParameter("confidence", confidence, "a number inside (0, 1)")
    return confidence


def error_share(confidence: float) -> float:
    """1 - confidence: the share of intervals that may miss.

    Raises:
      BadParameter: the confidence is not inside (0, 1).
    """
    return 1.0 - as_confidence(confidence)
