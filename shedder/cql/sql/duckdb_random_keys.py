"""Random keys of tuples in DuckDB: `position_keys` of synopses/kernels/hashing.py as SQL."""

# No SQL text comes from a caller.
# ruff: noqa: S608

from __future__ import annotations

from synopses.kernels.hashing import GOLDEN, position_start

_HALF = "4294967295::UBIGINT"  # 2^32 - 1
# Shifts and multipliers of splitmix64's output function (Steele, Lea, Flood, OOPSLA 2014).
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def with_position_key(rows: str, position: str, key: str, seed: int) -> str:
    """The rows with one more column: the random key of each tuple, a UBIGINT.

    Args:
      rows: a SELECT.
      position: its column of positions; those of a backfill are below 0.
      key: name of the new column.
      seed: of the stream.
    """
    steps = [
        _unsigned(position),
        _product(key, int(GOLDEN)),
        _sum(key, int(position_start(seed, 0))),
    ]
    for shift, factor in _ROUNDS:
        steps += [f"xor({key}, {key} >> {shift})", _product(key, factor)]
    steps.append(f"xor({key}, {key} >> 31)")
    kept = "*"
    for step in steps:
        rows = f"SELECT {kept}, {step} AS {key} FROM ({rows}) AS q"
        kept = f"* EXCLUDE ({key})"
    return rows


def _unsigned(value: str) -> str:
    """The value modulo 2^64; DuckDB refuses casts of negative values."""
    negative = f"18446744073709551615::UBIGINT - (-({value} + 1))::UBIGINT"
    return f"CASE WHEN {value} < 0 THEN {negative} ELSE {value}::UBIGINT END"


def _product(value: str, factor: int) -> str:
    """The product modulo 2^64; DuckDB refuses products that overflow."""
    high, low = f"({factor >> 32})::UBIGINT", f"({factor & 0xFFFFFFFF})::UBIGINT"
    upper, lower = f"({value}::UBIGINT >> 32)", f"({value}::UBIGINT & {_HALF})"
    carried = f"(({lower} * {low}) >> 32)"
    top = f"((({upper} * {low}) & {_HALF}) + (({lower} * {high}) & {_HALF}) + {carried})"
    return f"((({top} & {_HALF}) << 32) | (({lower} * {low}) & {_HALF}))"


def _sum(value: str, other: int) -> str:
    """The sum modulo 2^64."""
    high, low = f"({other >> 32})::UBIGINT", f"({other & 0xFFFFFFFF})::UBIGINT"
    bottom = f"(({value} & {_HALF}) + {low})"
    top = f"(({value} >> 32) + {high} + ({bottom} >> 32))"
    return f"((({top} & {_HALF}) << 32) | ({bottom} & {_HALF}))"
