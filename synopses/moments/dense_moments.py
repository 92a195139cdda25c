"""Count, sum and extremes of doubles per group, where a batch has many rows of each.

Four numbers of a group lie side by side: its sum and what that lost by rounding, its least value
with the sign turned and its most. One vector is read, changed without asking anything, and written
back. What is not finite makes its group's sum not finite, too, or a NaN; such groups keep what they
had, and their rows are added again with care. So no row is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from synopses.kernels.array_inputs import largest_id
from synopses.moments.moment_kernels import (
    COUNT,
    LEAST,
    MOST,
    REST,
    SUM,
    Floats,
    Ids,
    Integers,
    add_doubles,
    add_doubles_of,
    two_sum,
)

ROWS_MIN: Final = 1024
"""Rows from which on a batch is worth gathering all groups for,"""
OF_EACH_MIN: Final = 4
"""if they are so many of each group."""

_LOOKED_AT = 1024  # Values that say whether others are likely to be finite, and not negative.
_WIDTH = 4
_SEVERAL = 64  # Groups of which a next row does not come too soon.

_DOUBLE, _BITS, _PLACE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)


def _numbers(of: ir.Type, *numbers: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(of, len(numbers)), list(numbers))


def _adding(is_positive: bool, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Add x to the row of a table of (sum, rest, -least, most)."""
    table = context.make_array(signature.args[0])(context, builder, arguments[0])
    place = builder.gep(table.data, [builder.mul(arguments[1], _BITS(_WIDTH))])
    place = builder.bitcast(place, ir.VectorType(_DOUBLE, _WIDTH).as_pointer())
    held, nothing = builder.load(place, align=8), _numbers(_DOUBLE, 0.0, 0.0, 0.0, 0.0)
    alone = builder.insert_element(nothing, arguments[2], _PLACE(0))  # (x, 0, 0, 0)
    each = builder.shuffle_vector(alone, alone, _numbers(_PLACE, 0, 0, 0, 0))
    turned = builder.xor(
        builder.bitcast(each, ir.VectorType(_BITS, _WIDTH)), _numbers(_BITS, 0, 0, 1 << 63, 0)
    )
    turned = builder.bitcast(turned, held.type)  # (x, x, -x, x)
    larger = builder.select(builder.fcmp_ordered(">", turned, held), turned, held)
    total = builder.fadd(held, alone)
    if is_positive:
        smaller = builder.select(builder.fcmp_ordered("<", each, held), each, held)
        error = builder.fsub(smaller, builder.fsub(total, larger))
    else:
        part = builder.fsub(total, held)
        left = builder.fsub(held, builder.fsub(total, part))
        error = builder.fadd(left, builder.fsub(alone, part))
    error = builder.shuffle_vector(nothing, error, _numbers(_PLACE, 0, 4, 0, 0))  # To the rest.
    sums = builder.fadd(total, error)
    builder.store(builder.shuffle_vector(sums, larger, _numbers(_PLACE, 0, 1, 6, 7)), place, 8)
    return context.get_dummy_value()


@intrinsic
def _add_positive(typing_context, table, row, x):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _adding(True, context, builder, signature, arguments)

    return types.void(table, types.uint64, types.float64), codegen


@intrinsic
def _add_any(typing_context, table, row, x):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _adding(False, context, builder, signature, arguments)

    return types.void(table, types.uint64, types.float64), codegen


# Add a double to a row of a table of (sum, rest, -least, most); only inside kernels. The rounding
# error of the sum takes six operations (Knuth, TAOCP 2, 4.2.2, Thm B), or three where the larger of
# the two is known (Dekker 1971, Numer. Math. 18, 4.14): where neither is negative a comparison
# tells it.
_Adding = Callable[[Floats, np.uint64, float], None]
add_any: _Adding = cast(Any, _add_any)
add_positive: _Adding = cast(Any, _add_positive)


@njit(nogil=True, cache=True)
def add_plain(
    floats: Floats,
    ints: Integers,
    infinite: Integers,
    groups: int,
    step: int,
    ids: Ids,
    values: Floats,
) -> bool:
    """Count, sum, extremes of doubles per group (moment_kernels.py).

    Returns:
      Whether all ids are of one of the first so many groups; if not, nothing has changed.
    """
    finite, negative = 0, 0
    for x in values[:_LOOKED_AT]:
        finite += abs(x) < np.inf
        negative += x < 0.0
    if finite < min(_LOOKED_AT, values.size):
        if largest_id(ids) >= groups:
            return False
        add_doubles(floats, ints, infinite, step, ids, values)
        return True
    is_positive, sign = negative == 0, 1.0 if groups < _SEVERAL else -1.0
    rows, counts = np.empty((groups, _WIDTH)), np.zeros(groups, np.uint32)
    for group in range(groups):
        rows[group, 0], rows[group, 1] = floats[group, SUM], floats[group, REST]
        rows[group, 2], rows[group, 3] = sign * floats[group, LEAST], floats[group, MOST]
        is_positive &= floats[group, LEAST] >= 0.0
    if groups < _SEVERAL and is_positive:
        are_known = _add_in_turn(True, rows, counts, ids, values)
    elif groups < _SEVERAL:
        are_known = _add_in_turn(False, rows, counts, ids, values)
    elif is_positive:
        are_known = _add_at_once(True, rows, counts, ids, values)
    else:
        are_known = _add_at_once(False, rows, counts, ids, values)
    if not are_known:
        return False
    again, some = np.zeros(groups, np.bool_), False
    for group in range(groups):
        total, least = rows[group, 0], sign * rows[group, 2]
        if not abs(total) < np.inf or (is_positive and least < 0.0):
            again[group], some = True, True
            continue
        floats[group, SUM], floats[group, REST] = total, rows[group, 1]
        floats[group, LEAST], floats[group, MOST] = least, rows[group, 3]
        ints[group, COUNT] += step * np.int64(counts[group])
    if some:
        add_doubles_of(again, floats, ints, infinite, step, ids, values)
    return True


@njit(nogil=True, cache=True, inline="always")
def _add_at_once(
    is_positive: bool, rows: Floats, counts: NDArray[np.uint32], ids: Ids, values: Floats
) -> bool:
    """Inlined, for only where they are made is it known that the tables are apart."""
    for row in range(values.size):
        group = np.uint64(np.uint32(ids[row]))
        if group >= np.uint64(counts.size):
            return False
        if is_positive:
            add_positive(rows, group, values[row])
        else:
            add_any(rows, group, values[row])
        counts[group] += np.uint32(1)
    return True


@njit(nogil=True, cache=True, inline="always")
def _add_in_turn(
    is_positive: bool, rows: Floats, counts: NDArray[np.uint32], ids: Ids, values: Floats
) -> bool:
    """The same number by number: rows of (sum, rest, least, most)."""
    for row in range(values.size):
        group, x = np.uint64(np.uint32(ids[row])), values[row]
        if group >= np.uint64(counts.size):
            return False
        before = rows[group, 0]
        if not x >= rows[group, 2]:
            rows[group, 2] = x
        if not x <= rows[group, 3]:
            rows[group, 3] = x
            if is_positive and x > before:
                before, x = x, before
        if is_positive:
            total = before + x
            error = x - (total - before)
        else:
            total, error = two_sum(before, x)
        rows[group, 0] = total
        rows[group, 1] += error
        counts[group] += np.uint32(1)
    return True
