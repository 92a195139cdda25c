"""Sketches travel both ways: Spark's functions read our images, and we read what they wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64, murmur_utf8
from synopses.quantiles.kll import GroupedKll
from tests import truth
from tests.synopses.subjects import arrow_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SIZES = (0, 1, 5, 100, 20_000)  # Empty, list, set and registers, as the library has them.


def one(spark: SparkSession, expression: str, source: str, **images: bytes):
    """The value of an aggregate in Spark; images are bound as parameters."""
    return several(spark, [expression], source, **images)[0]


def several(spark: SparkSession, expressions: list[str], source: str, **images: bytes) -> list[Any]:
    """Return the values of several expressions, from one statement."""
    args = {name: bytearray(image) for name, image in images.items()}
    columns = ", ".join(f"{each} AS v{at}" for at, each in enumerate(expressions))
    return list(spark.sql(f"SELECT {columns} FROM {source}", args=args).first())


def ids(size: int) -> str:
    return f"range({size})"


def of_sizes(spark: SparkSession, call: str) -> list[bytes]:
    """Return Spark's sketch of the first ids, for each size."""
    calls = [f"{call} FILTER (WHERE id < {size})" for size in SIZES]
    return [bytes(image) for image in several(spark, calls, ids(max(SIZES)))]


def test_spark_reads_our_registers_and_we_read_its_own(spark):
    images = {}
    for size, written in zip(SIZES, of_sizes(spark, "hll_sketch_agg(id, 12)"), strict=True):
        ours = GroupedDistinct(1, 12)
        ours.update(None, *murmur_int64(np.arange(size)))
        theirs = GroupedDistinct.from_images([written], 12)
        assert theirs.registers(0).tobytes() == ours.registers(0).tobytes(), size
        images[f"of_{size}"] = ours.image(0)
    estimates = several(
        spark, [f"hll_sketch_estimate(:{name})" for name in images], "range(1)", **images
    )
    for size, estimate in zip(SIZES, estimates, strict=True):
        # Our sketch knows that there were no more than 20,000 values.
        assert abs(estimate - size) <= 0.06 * size, size


def test_registers_of_texts_are_those_of_spark(spark):
    ours, texts = GroupedDistinct(1, 10), np.array([f"é{value}" for value in range(3000)], object)
    ours.update(None, *murmur_utf8(*arrow_of(texts)))
    written = one(spark, "hll_sketch_agg(concat('é', id), 10)", ids(3000))
    theirs = GroupedDistinct.from_images([bytes(written)], 10)
    assert theirs.registers(0).tobytes() == ours.registers(0).tobytes()


def test_a_union_in_spark_of_its_sketch_and_ours_is_that_of_all_values(spark):
    ours = GroupedDistinct(1, 12)
    ours.update(None, *murmur_int64(np.arange(10_000, 30_000)))
    union = one(
        spark,
        "hll_union(hll_sketch_agg(id, 12), :image)",
        ids(20_000),
        image=ours.image(0),
    )
    every = GroupedDistinct(1, 12)
    every.update(None, *murmur_int64(np.arange(30_000)))
    read = GroupedDistinct.from_images([bytes(union)], 12)
    assert read.registers(0).tobytes() == every.registers(0).tobytes()


def test_quantile_sketches_travel_both_ways(spark):
    ranks = (0.1, 0.5, 0.99)
    call = "kll_sketch_agg_double(CAST(id * 0.5D AS DOUBLE), 200)"
    for size, written in zip(SIZES, of_sizes(spark, call), strict=True):
        values = np.arange(size) * 0.5
        ours = GroupedKll(1, 200)
        ours.update(None, values)
        theirs = GroupedKll.from_images([written], 200)
        assert theirs.counts().tolist() == [size]
        expressions = ["kll_sketch_get_n_double(:image)"]
        expressions += [f"kll_sketch_get_quantile_double(:image, {q}D)" for q in ranks if size]
        n, *read = several(spark, expressions, "range(1)", image=ours.image(0))
        assert n == size
        for q, value in zip(ranks, read, strict=size > 0):
            exact = truth.exact_quantile(values, q)
            answer = theirs.quantile(q, 0.9999)
            assert answer.low[0] <= exact <= answer.high[0]
            answer = ours.quantile(q, 0.9999)
            assert answer.low[0] <= value <= answer.high[0]


def test_a_merge_in_spark_of_its_quantiles_and_ours_has_all_values(spark):
    ours = GroupedKll(1, 200)
    ours.update(None, np.arange(10_000, 30_000, dtype=np.float64))
    merged = one(
        spark,
        "kll_sketch_merge_double(kll_sketch_agg_double(CAST(id AS DOUBLE), 200), :image)",
        ids(10_000),
        image=ours.image(0),
    )
    read = GroupedKll.from_images([bytes(merged)], 200)
    assert read.counts().tolist() == [30_000]
    answer = read.quantile(0.5, 0.9999)
    assert answer.low[0] <= 15_000 <= answer.high[0]
