"""Shares: which part of its tuples a query may read, as a text says it; level j is 1/2^j."""

from __future__ import annotations

from shedder.errors import BadSetting

LEVEL_MAX = 20
"""The least share: 2^-20, one tuple in a million."""


def share_text(level: int) -> str:
    """A level as the share that is read: 1, 1/2, 1/4 ..."""
    return f"1/{1 << level}" if level else "1"


LEVELS = {share_text(level): level for level in range(LEVEL_MAX + 1)} | {"1/1": 0}
"""The level of every share that can be said."""
EXPECTED = f"a share of the tuples: 1, 1/2, 1/4 ... {share_text(LEVEL_MAX)}"


def level_of(share: str) -> int:
    """The level of a share.

    Raises:
      BadSetting: it is none.
    """
    level = LEVELS.get(share)
    if level is None:
        raise BadSetting(f"thinning is {share!r}; it must be {EXPECTED}")
    return level


AUTO = "AUTO"
"""No share of its own: what load leaves."""
