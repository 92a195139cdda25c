"""Hashes: DataSketches' MurmurHash3 for values, mixing for group keys, random keys for positions.

`murmur_*` give the two 64-bit halves that Apache DataSketches (and so Spark and Druid) computes
with its default seed, so that registers and hash sets built here can be merged with theirs.
Source: Appleby, MurmurHash3_x64_128 (public domain); splitmix64: Steele, Lea, Flood 2014.
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

_SEED = np.uint64(9001)  # DataSketches' own.
_LENGTH = np.uint64(8)  # Bytes of a word.
_BLOCK = 512  # Words between whose loops nothing leaves the nearest cache: 4 KiB a column.

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TURN = 23  # Bits by which a word is rotated before it is combined with another one.
# Of the factors of splitmix64 and of `_paired`, modulo 2^64.
_INVERSES = tuple(
    np.uint64(pow(factor, -1, 1 << 64))
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, int(GOLDEN))
)
_CANONICAL_NAN = np.int64(0x7FF8000000000000)


@intrinsic
def _count_leading_zeros(typing_context, value):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return builder.ctlz(arguments[0], context.get_constant(types.boolean, 0))

    return types.uint64(types.uint64), codegen


# How many leading bits of a uint64 are zero (64 for 0), by the machine's own instruction; only
# inside kernels.
leading_zeros: Callable[[np.uint64], np.uint64] = cast(Any, _count_leading_zeros)


@njit(nogil=True, cache=True, inline="always")
def lowest_bit(word: np.uint64) -> np.uint64:
    """Return which is the lowest bit of a word that is set, 0 to 63; not of 0."""
    return np.uint64(63) - leading_zeros(word ^ (word - np.uint64(1)))


@intrinsic
def _load_eight_bytes(typing_context, data, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.gep(array.data, [arguments[1]])
        word = builder.bitcast(start, ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(data, types.int64), codegen


# The uint64 that begins at a byte of a uint8 array, wherever that is; only inside kernels.
_eight_bytes: Callable[[NDArray[np.uint8], int], np.uint64] = cast(Any, _load_eight_bytes)


@njit(nogil=True, cache=True, inline="always")
def _rotate(x: np.uint64, by: int) -> np.uint64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@njit(nogil=True, cache=True, inline="always")
def _finalise_half(x: np.uint64) -> np.uint64:
    return (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)


@njit(nogil=True, cache=True, inline="always")
def _finalise_rest(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit(nogil=True, cache=True, inline="always")
def _finalise(x: np.uint64) -> np.uint64:
    return _finalise_rest(_finalise_half(x))


@njit(nogil=True, cache=True, inline="always")
def _scramble1(k: np.uint64) -> np.uint64:
    return _rotate(k * _C1, 31) * _C2


@njit(nogil=True, cache=True, inline="always")
def _scramble2(k: np.uint64) -> np.uint64:
    return _rotate(k * _C2, 33) * _C1


@njit(nogil=True, cache=True, inline="always")
def _close(a: np.uint64, b: np.uint64, length: np.uint64) -> tuple[np.uint64, np.uint64]:
    a ^= length
    b ^= length
    a += b
    b += a
    a = _finalise(a)
    b = _finalise(b)
    a += b
    b += a
    return a, b


@njit(nogil=True, cache=True)
def _murmur_words(
    words: NDArray[np.uint64], h1: NDArray[np.uint64], h2: NDArray[np.uint64]
) -> None:
    """Hash words of 8 bytes: `_close` of one block, a multiplication of each word in a loop.

    Six in a row are a chain so long that the processor sees no more than the next few words, and
    waits; of short chains it has many in flight. What passes from loop to loop is near.
    """
    for first in range(0, words.size, _BLOCK):
        part = words[first : first + _BLOCK]
        a, b = h1[first : first + _BLOCK], h2[first : first + _BLOCK]
        for row in range(part.size):
            a[row] = part[row] * _C1
        for row in range(part.size):
            a[row] = (_SEED ^ (_rotate(a[row], 31) * _C2) ^ _LENGTH) + (_SEED ^ _LENGTH)
        for row in range(part.size):
            b[row] = _finalise_half(a[row] + (_SEED ^ _LENGTH))
        for row in range(part.size):
            b[row] = _finalise_rest(b[row])
        for row in range(part.size):
            a[row] = _finalise_half(a[row])
        for row in range(part.size):
            a[row] = _finalise_rest(a[row]) + b[row]
            b[row] += a[row]


@njit(nogil=True, cache=True, inline="always")
def _tail(data: NDArray[np.uint8], at: int, length: int) -> np.uint64:
    """The next 1 to 8 bytes as the low end of a word."""
    if at + 8 <= data.size:
        return _eight_bytes(data, at) & (_ALL >> np.uint64(64 - 8 * length))
    word = np.uint64(0)
    for byte in range(length):
        word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return word


@njit(nogil=True, cache=True)
def _murmur_utf8(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    h1: NDArray[np.uint64],
    h2: NDArray[np.uint64],
) -> None:
    for row in range(h1.size):
        at = int(offsets[row])
        end = int(offsets[row + 1])
        length = np.uint64(end - at)
        a = _SEED
        b = _SEED
        while end - at >= 16:
            a ^= _scramble1(_eight_bytes(data, at))
            a = (_rotate(a, 27) + b) * np.uint64(5) + np.uint64(0x52DCE729)
            b ^= _scramble2(_eight_bytes(data, at + 8))
            b = (_rotate(b, 31) + a) * np.uint64(5) + np.uint64(0x38495AB5)
            at += 16
        if end - at > 8:
            b ^= _scramble2(_tail(data, at + 8, end - at - 8))
        if end > at:
            a ^= _scramble1(_tail(data, at, min(end - at, 8)))
        h1[row], h2[row] = _close(a, b, length)


Halves = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def murmur_int64(values: NDArray[np.int64]) -> Halves:
    """Both halves of the hash of each integer, as DataSketches hashes a long; shape [n] each."""
    return _of_words(as_input(values, np.int64).view(np.uint64))


def murmur_float64(values: NDArray[np.float64]) -> Halves:
    """Both halves of the hash of each double; -0.0 is 0.0 and all NaN are one, as DataSketches."""
    words = (as_input(values, np.float64) + 0.0).view(np.int64)
    words = np.where(np.isnan(values), _CANONICAL_NAN, words)
    return _of_words(words.view(np.uint64))


def _of_words(words: NDArray[np.uint64]) -> Halves:
    h1, h2 = np.empty(words.size, np.uint64), np.empty(words.size, np.uint64)
    _murmur_words(as_input(words, np.uint64), h1, h2)
    return h1, h2


def murmur_utf8(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Halves:
    """Both halves of the hash of each string of an Arrow string column.

    DataSketches ignores the empty string; here it is a value like any other.

    Args:
      offsets: int32 [n + 1], where each string begins in data; need not start at 0.
      data: uint8, the UTF-8 bytes.

    Returns:
      Two uint64 [n].
    """
    rows = max(offsets.size - 1, 0)
    h1, h2 = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    _murmur_utf8(as_input(offsets, np.int32), as_input(data, np.uint8), h1, h2)
    return h1, h2


@njit(nogil=True, cache=True, inline="always")
def _splitmix_half(x: np.uint64) -> np.uint64:
    return (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)


@njit(nogil=True, cache=True, inline="always")
def _splitmix_rest(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True, inline="always")
def splitmix(x: np.uint64) -> np.uint64:
    """The output function of splitmix64: a bijection whose every output bit depends on all of x."""
    return _splitmix_rest(_splitmix_half(x))


@njit(nogil=True, cache=True, inline="always")
def _splitmix_block(block: NDArray[np.uint64]) -> None:
    """The same of each word, in place: in short chains, as `_murmur_words`."""
    for row in range(block.size):
        block[row] = _splitmix_half(block[row])
    for row in range(block.size):
        block[row] = _splitmix_rest(block[row])


@njit(nogil=True, cache=True, inline="always")
def _paired(left: np.uint64, right: np.uint64) -> np.uint64:
    return _rotate(left, _TURN) * GOLDEN + right


@njit(nogil=True, cache=True)
def _combine(left: NDArray[np.uint64], right: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    for first in range(0, out.size, _BLOCK):
        ours, theirs = left[first : first + _BLOCK], right[first : first + _BLOCK]
        block = out[first : first + _BLOCK]
        for row in range(block.size):
            block[row] = _paired(ours[row], theirs[row])
        _splitmix_block(block)


def combine(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One hash of two columns of hashes; order matters. Shape [n]."""
    out = np.empty(left.size, np.uint64)
    _combine(as_input(left, np.uint64), as_input(right, np.uint64), out)
    return out


@njit(nogil=True, cache=True)
def _salted(hashes: NDArray[np.uint64], salt: np.uint64, out: NDArray[np.uint64]) -> None:
    for first in range(0, out.size, _BLOCK):
        part, block = hashes[first : first + _BLOCK], out[first : first + _BLOCK]
        for row in range(block.size):
            block[row] = _paired(part[row], salt)
        _splitmix_block(block)


def salted(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    """The hashes combined with one more, the same for all; shape [n]."""
    out = np.empty(hashes.size, np.uint64)
    _salted(as_input(hashes, np.uint64), salt, out)
    return out


def unsalted(hashes: NDArray[np.uint64], salt: np.uint64) -> NDArray[np.uint64]:
    """The hashes from which `salted` makes these; shape [n]. Each of its steps is a bijection."""
    words = as_input(hashes, np.uint64)
    words = _unshifted(words, 31) * _INVERSES[1]
    words = _unshifted(words, 27) * _INVERSES[0]
    words = (_unshifted(words, 30) - salt) * _INVERSES[2]
    return (words >> np.uint64(_TURN)) | (words << np.uint64(64 - _TURN))


def _unshifted(words: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
    """Return x where words = x ^ (x >> by)."""
    found = words
    for shift in range(by, 64, by):
        found = found ^ (words >> np.uint64(shift))
    return found


@njit(nogil=True, cache=True)
def _position_keys(start: np.uint64, out: NDArray[np.uint64]) -> None:
    for first in range(0, out.size, _BLOCK):
        block = out[first : first + _BLOCK]
        for row in range(block.size):
            block[row] = start + np.uint64(first + row) * GOLDEN
        _splitmix_block(block)


def position_keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """The random keys of the tuples at positions first .. first + count - 1 of a stream.

    A function of seed and position alone, so that a replay draws the same samples. Shape [count].
    """
    out = np.empty(count, np.uint64)
    _position_keys(position_start(seed, first), out)
    return out


def position_start(seed: int, first: int) -> np.uint64:
    """Return where kernels begin: the key of position first + i is splitmix(start + i * GOLDEN)."""
    word = 0xFFFFFFFFFFFFFFFF
    scrambled = _splitmix_python((seed + int(GOLDEN)) & word)
    return np.uint64((scrambled + (first + 1) * int(GOLDEN)) & word)


@njit(nogil=True, cache=True)
def _chosen_keys(start: np.uint64, rows: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for at in range(out.size):
        out[at] = splitmix(start + np.uint64(rows[at]) * GOLDEN)


def chosen_keys(start: np.uint64, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The keys of some of the positions from a start on. Shape [n]."""
    out = np.empty(rows.size, np.uint64)
    _chosen_keys(start, as_input(rows, np.int64), out)
    return out


def _splitmix_python(x: int) -> int:
    word = 0xFFFFFFFFFFFFFFFF
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & word
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & word
    return x ^ (x >> 31)


def uniforms(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Keys as numbers strictly between 0 and 1 (52 bits); keeps their order. Shape [n]."""
    return ((keys >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
