"""Numbers since 1970 become microseconds by exact decimal arithmetic, rounded down and counted."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal

import numpy as np
import pyarrow as pa
import pytest

from shedder.cli.files.epoch_times import TimeUnit, epoch_times
from tests.seeds import seed

MICROS = {TimeUnit.S: 10**6, TimeUnit.MS: 10**3, TimeUnit.US: 1, TimeUnit.NS: Decimal("0.001")}


def read(column: pa.Array, unit: TimeUnit) -> tuple[list[int | None], list[bool]]:
    times, cut = epoch_times(column, unit)
    assert times.type == pa.timestamp("us")
    return times.cast(pa.int64()).to_pylist(), cut.tolist()


def numbers(unit: TimeUnit) -> list[str]:
    """Texts of random numbers of any size within years 1 to 9999, with 0 to 12 decimals.

    Two are always there: one that is whole in each unit, and one that is in none. Of random
    nanoseconds so few are whole microseconds that 10 seeds of 150 had none of them.
    """
    rng = np.random.default_rng(seed("epoch times", unit.value))
    digits_max = min(17 - unit.decimals, 18)
    drawn = [
        ("-" if rng.random() < 0.5 else "")
        + str(rng.integers(10 ** rng.integers(1, digits_max + 1)))
        + f".{rng.integers(10**12):012}"[: rng.integers(0, 14)]
        + "0" * int(rng.integers(0, 2))
        for _ in range(2_000)
    ]
    return ["1000", "0.00000000001", *drawn]


@pytest.mark.parametrize("unit", TimeUnit)
def test_numbers_in_text_are_rounded_down_exactly_and_counted(unit):
    texts = numbers(unit)
    exact = [Decimal(text) * MICROS[unit] for text in texts]
    floors = [int(each.to_integral_value(ROUND_FLOOR)) for each in exact]
    times, cut = read(pa.array(texts), unit)
    assert times == floors
    assert cut == [each != floor for each, floor in zip(exact, floors, strict=True)]
    assert 0 < sum(cut) < len(cut)


@pytest.mark.parametrize("unit", [TimeUnit.S, TimeUnit.MS, TimeUnit.US])
def test_a_double_that_is_the_closest_to_a_microsecond_is_that_microsecond(unit):
    """To floor the product of 1357017300.1 and a million could lose a microsecond."""
    rng = np.random.default_rng(seed("epoch doubles", unit.value))
    micros = np.concatenate((rng.integers(-(10**15), 2 * 10**15, 2_000), np.arange(-50, 50)))
    doubles = [float(Decimal(int(each)) / MICROS[unit]) for each in micros]
    assert read(pa.array(doubles), unit) == (micros.tolist(), [False] * len(micros))
    exponents = pa.array([f"{each:.20e}" for each in doubles])
    assert read(exponents, unit) == (micros.tolist(), [False] * len(micros))


@pytest.mark.parametrize(
    ("column", "unit", "times", "cut"),
    [
        (
            pa.array([".1234", "-.1234", "1.", "-0", ".", "+", "", None, "x", "1-2"]),
            TimeUnit.MS,
            [123, -124, 1000, 0, *([None] * 6)],
            [True, True, *([False] * 8)],
        ),
        (
            pa.array([1.5, -1.5, 0.1, float("nan"), float("inf"), 1e300, None]),
            TimeUnit.US,
            [1, -2, 0, None, None, None, None],
            [True, True, True, *([False] * 4)],
        ),
        (
            pa.array([1999, -1, 2000, None]),
            TimeUnit.NS,
            [1, -1, 2, None],
            [True, True, False, False],
        ),
        (
            pa.array(["1.2345678", None]).cast(pa.decimal128(20, 7)),
            TimeUnit.S,
            [1234567, None],
            [True, False],
        ),
        (
            pa.array(["1e3", "1.5e-3", "1e400"]),
            TimeUnit.MS,
            [1000000, 1, None],
            [False, True, False],
        ),
        (pa.array([None, None], pa.string()), TimeUnit.S, [None, None], [False, False]),
        (pa.array([], pa.string()), TimeUnit.S, [], []),
        (pa.array(["9" * 30, "1"]), TimeUnit.NS, [None, 0], [False, True]),
    ],
)
def test_numbers_of_each_kind_are_read_and_what_is_none_is_null(column, unit, times, cut):
    assert read(column, unit) == (times, cut)
