"""Combining: several intervals that all hold at once, by the union bound."""

from __future__ import annotations

from synopses.model.errors import BadParameter
from synopses.model.parameters import error_share


def split_confidence(confidence: float, parts: int) -> float:
    """What each of `parts` intervals must be asked for, so that all hold with `confidence`.

    The union bound: 1 - (1 - confidence)/parts. It needs no independence.

    Raises:
      BadParameter: the confidence is not inside (0, 1), or there is no part.
    """
    if parts < 1:
        raise BadParameter("parts", parts, "1 or more")
    return 1.0 - error_share(confidence) / parts
