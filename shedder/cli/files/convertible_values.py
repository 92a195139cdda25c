"""Values of a column that can be converted; NULL for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def as_far_as(column: Any, convert: Callable[[Any], Any], kind: Any) -> Any:
    """Convert a column, with NULL for each value that is refused, found by halving.

    Args:
      convert: gives an array of the Arrow type `kind`, or raises ArrowInvalid.
    """
    try:
        return convert(column)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, kind)
    half = len(column) // 2
    left, right = column[:half], column[half:]
    return pa.concat_arrays([as_far_as(left, convert, kind), as_far_as(right, convert, kind)])


def matching(text: Any, pattern: str) -> Any:
    """NULL for each text that a regular expression does not match: halving would be slow."""
    matches = pc.match_substring_regex(text, pattern)
    return text if pc.all(matches).as_py() in (True, None) else where(text, matches)


def where(values: Any, mask: Any) -> Any:
    """NULL for each value whose mask is false or NULL."""
    return pc.if_else(mask, values, pa.scalar(None, values.type))
