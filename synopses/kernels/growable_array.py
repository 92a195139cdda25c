"""Appending to an array without copying it each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def appended(
    held: NDArray[Any], more: NDArray[Any], room: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """`held` followed by `more`, and the room it is the beginning of.

    Args:
      held: shape [n]; what this function gave last, or any other array (which is then copied).
      more: shape [m].
      room: what this function gave last; an empty array at first.

    Views of the rows held before stay as they are: rows are only written behind them.
    """
    size = held.size + more.size
    if held.base is not room or size > room.size:
        room = np.empty(2 * size, held.dtype)
        room[: held.size] = held
    room[held.size : size] = more
    return room[:size], room
