"""One column of an answer before its companions are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType


@dataclass(frozen=True, slots=True, eq=False)
class OutputColumn:
    """One output for all groups.

    value: typed array. low, high: arrays of the same type; None for plain columns and lists.
    bound: uint8 [groups], values of Bound; None for plain columns (functions of group keys).
    size, reach: float64 [groups], |value| and the larger distance to an end; inf is no bound.
    confidence: of the column's intervals; 1.0 when all are certain.
    """

    name: str
    kind: ColumnType | None
    value: pa.Array[Any]
    low: pa.Array[Any] | None = None
    high: pa.Array[Any] | None = None
    bound: NDArray[np.uint8] | None = None
    size: NDArray[np.float64] | None = None
    reach: NDArray[np.float64] | None = None
    confidence: float = 1.0
