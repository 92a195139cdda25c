"""What all grouped summaries do alike with their group axis: rows of arrays that grow and move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def grown(rows: NDArray[Any], groups: int, fill: Any = 0) -> NDArray[Any]:
    """The same rows with room for at least `groups`; capacity doubles, new rows hold `fill`.

    rows: shape [capacity, ...], first axis the group.
    """
    if groups <= len(rows):
        return rows
    capacity = max(groups, min(2 * len(rows), groups + 65_536))
    wider = np.empty((capacity, *rows.shape[1:]), rows.dtype)
    wider[: len(rows)] = rows
    wider[len(rows) :] = fill
    return wider


def scattered(
    rows: NDArray[Any], ids: NDArray[np.int64], groups: int, fill: Any = 0
) -> NDArray[Any]:
    """Rows moved to the groups `ids` among `groups`; the others hold `fill`."""
    moved = np.empty((groups, *rows.shape[1:]), rows.dtype)
    moved[:] = fill
    moved[ids] = rows
    return moved
