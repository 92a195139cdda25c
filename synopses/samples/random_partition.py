"""Dealing rows at random into blocks of given sizes, and moving values to where they were dealt.

Why any k of the R blocks are a simple random sample: the rows are taken one by one, and each goes
to block b with probability (free places of b) / (free places of all). Whatever the deal is, its
probability is then prod(size_b!) / n!: each block's free places counted down, over all free places
counted down. All deals with these sizes are equally probable, so the union of k blocks is equally
likely to be any set of so many rows (Cochran 1977, ch. 2). The draws are hashes of a seed and the
row's position, so the same run is always dealt in the same way; their bias is below R / 2^32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from synopses.kernels.array_inputs import as_input
from synopses.kernels.hashing import GOLDEN, position_start, splitmix

BLOCKS_MAX = 1 << 16
ROWS_MAX = (1 << 31) - 1
_SALT = 0x6465616C  # "deal": not the keys that samples and thinning choose by.
_RETRY = np.uint64(0xD1B54A32D192ED03)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@intrinsic
def _copy(typing_context, data, at, out, to):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        words = []
        for array, place in ((0, 1), (2, 3)):
            view = context.make_array(signature.args[array])(context, builder, arguments[array])
            start = builder.gep(view.data, [arguments[place]])
            words.append(builder.bitcast(start, ir.IntType(64).as_pointer()))
        builder.store(builder.load(words[0], align=1), words[1], align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, out, types.int64), codegen


# Copy the eight bytes at a place of a uint8 array to a place of another; only inside kernels.
_Bytes = NDArray[np.uint8]
_copy_eight_bytes: Callable[[_Bytes, int, _Bytes, int], None] = cast(Any, _copy)


def block_sizes(rows: int, blocks: int, halvings: int = 0) -> NDArray[np.int64]:
    """Rows of each block: equal, but for one more in the first ones; the last one may be divided.

    Args:
      rows: of all blocks.
      blocks: of equal size.
      halvings: into a half of the last of them, a quarter ... and what is left.

    Returns:
      shape [blocks + halvings].
    """
    sizes = np.full(blocks + halvings, rows // blocks, np.int64)
    sizes[: rows % blocks] += 1
    for at in range(blocks, blocks + halvings):
        sizes[at] = sizes[at - 1] // 2
        sizes[at - 1] -= sizes[at]
    return sizes


def deal(
    seed: int, first: int, sizes: NDArray[np.int64], out: NDArray[np.uint16] | None = None
) -> NDArray[np.uint16]:
    """The block of each row, at random, a function of the arguments alone.

    Args:
      seed: of the stream, uint64.
      first: position of the first row.
      sizes: rows of each block, shape [blocks], 1 to 2^16 of them; 0 to 2^31 - 1 rows in all.
      out: what is returned, shape [rows]; new memory when None.

    Returns:
      shape [rows]; block b occurs sizes[b] times.
    """
    rows = int(sizes.sum())
    assert 0 <= rows <= ROWS_MAX
    assert 1 <= sizes.size <= BLOCKS_MAX
    out = np.empty(rows, np.uint16) if out is None else out
    assert out.size == rows
    _deal(position_start(seed ^ _SALT, first), sizes.copy(), out)
    return out


@njit(nogil=True, cache=True)
def _deal(start: np.uint64, free: NDArray[np.int64], out: NDArray[np.uint16]) -> None:
    """Draw a block, take it with probability free[block] / most, or else draw again."""
    blocks = np.uint64(free.size)
    most = free.max()
    fullest = (free == most).sum()
    for row in range(out.size):
        draw = splitmix(start + np.uint64(row) * GOLDEN)
        block = np.int64(((draw >> _HALF) * blocks) >> _HALF)
        while np.int64(((draw & _LOW) * np.uint64(most)) >> _HALF) >= free[block]:
            draw = splitmix(draw + _RETRY)
            block = np.int64(((draw >> _HALF) * blocks) >> _HALF)
        out[row] = block
        fullest -= free[block] == most
        free[block] -= 1
        if fullest == 0:
            most -= 1
            for other in range(free.size):
                fullest += free[other] == most


def places(
    dealt: NDArray[np.uint16],
    order: NDArray[np.int64] | None,
    sizes: NDArray[np.int64],
    out: NDArray[np.int32] | None = None,
) -> NDArray[np.int32]:
    """Return where each row goes when blocks lie one after the other.

    Args:
      dealt: the block of each row, shape [rows].
      order: the order of rows within each block, shape [rows]; None: as they are.
      sizes: rows per block, shape [blocks].
      out: what is returned, shape [rows]; new memory when None.

    Returns:
      shape [rows], a permutation of 0 .. rows - 1.
    """
    out = np.empty(dealt.size, np.int32) if out is None else out
    free = np.cumsum(sizes) - sizes
    if order is None:
        _places(dealt, free, out)
    else:
        _ordered_places(dealt, as_input(order, np.int64), free, out)
    return out


@njit(nogil=True, cache=True)
def _places(dealt: NDArray[np.uint16], free: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    for row in range(dealt.size):
        block = dealt[row]
        out[row] = free[block]
        free[block] += 1


@njit(nogil=True, cache=True)
def _ordered_places(
    dealt: NDArray[np.uint16],
    order: NDArray[np.int64],
    free: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    for row in order:
        block = dealt[row]
        out[row] = free[block]
        free[block] += 1


def left_out(
    keys: NDArray[np.uint64], sizes: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Rows of blocks that are left out, so many of each, at random: of a block and key any set of
    rows is as likely as another, and those of a smaller count are among those of a larger.

    Args:
      keys: 64 random bits for each block, shape [blocks]. sizes: its rows, below 2^31.
      counts: how many are left out, at most as many.

    Returns:
      shape [rows of all blocks].
    """
    out = np.zeros(int(sizes.sum()), np.bool_)
    _leave_out(keys, as_input(sizes, np.int64), as_input(counts, np.int64), out)
    return out


@njit(nogil=True, cache=True)
def _leave_out(
    keys: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: NDArray[np.bool_],
) -> None:
    """The first rows of a random order (Fisher and Yates, as far as they are needed)."""
    begin = 0
    for block in range(sizes.size):
        order = np.arange(sizes[block])
        for row in range(counts[block]):
            draw = splitmix(keys[block] + np.uint64(row) * GOLDEN)
            left = np.uint64(sizes[block] - row)
            other = row + np.int64(((draw >> _HALF) * left) >> _HALF)
            order[row], order[other] = order[other], order[row]
            out[begin + order[row]] = True
        begin += sizes[block]


def undealt(positions: NDArray[np.int64], first: int, stretch: int) -> NDArray[np.int64] | None:
    """The row of each position, by rising position: int64 [rows].

    A kernel, because numpy puts values in places with the interpreter's lock held: 0.1 s a run.

    Args:
      positions: [rows], in any order. first, stretch: they lie in [first, first + stretch).

    Returns:
      None where one lies elsewhere, or stands twice.
    """
    rows = np.empty(positions.size, np.int64)
    return rows if _undeal(as_input(positions, np.int64), first, stretch, rows) else None


@njit(nogil=True, cache=True)
def _undeal(
    positions: NDArray[np.int64], first: int, stretch: int, rows: NDArray[np.int64]
) -> bool:
    row_of = np.full(stretch, -1, np.int64)
    for row in range(positions.size):
        place = positions[row] - first
        if place < 0 or place >= stretch or row_of[place] >= 0:
            return False
        row_of[place] = row
    at = 0
    for place in range(stretch):
        if row_of[place] >= 0:
            rows[at] = row_of[place]
            at += 1
    return True


def move(values: NDArray[np.generic], to: NDArray[np.int32], out: NDArray[np.generic]) -> None:
    """out[to[i]] = values[i], for values of 1, 4 or 8 bytes."""
    kind = np.dtype(f"u{values.itemsize}")
    _move(as_input(values.view(kind), kind.type), as_input(to, np.int32), out.view(kind))


@njit(nogil=True, cache=True)
def _move(values: NDArray[np.uint64], to: NDArray[np.int32], out: NDArray[np.uint64]) -> None:
    for row in range(values.size):
        out[to[row]] = values[row]


def number(first: int, to: NDArray[np.int32], out: NDArray[np.int64]) -> None:
    """out[to[i]] = first + i."""
    _number(first, as_input(to, np.int32), out)


@njit(nogil=True, cache=True)
def _number(first: int, to: NDArray[np.int32], out: NDArray[np.int64]) -> None:
    for row in range(to.size):
        out[to[row]] = first + row


def move_texts(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    to: NDArray[np.int32],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy text i (bytes offsets[i] to offsets[i + 1] of data) to out_offsets[to[i]] of out."""
    at, text = as_input(offsets, np.int32), as_input(data, np.uint8)
    _move_texts(at, text, as_input(to, np.int32), out_offsets, out)


@njit(nogil=True, cache=True)
def _move_texts(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    to: NDArray[np.int32],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Eight bytes at a time; the last eight may overlap those before."""
    for row in range(to.size):
        at = out_offsets[to[row]]
        begin, end = int(offsets[row]), int(offsets[row + 1])
        if end - begin < 8:
            for byte in range(begin, end):
                out[at + byte - begin] = data[byte]
        else:
            for byte in range(begin, end - 8, 8):
                _copy_eight_bytes(data, byte, out, at + byte - begin)
            _copy_eight_bytes(data, end - 8, out, at + end - 8 - begin)
