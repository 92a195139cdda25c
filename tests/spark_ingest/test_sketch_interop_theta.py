"""Theta sketches in both directions: Spark reads ours, we read Spark's, and they are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from synopses.kernels.hashing import murmur_float64, murmur_int64, murmur_utf8
from synopses.theta.set_operations import Compared
from synopses.theta.theta_sketch import GroupedTheta

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def of_texts(texts: list[str]) -> np.ndarray:
    _, offsets, data = pa.array(texts, pa.string()).buffers()
    assert offsets is not None
    assert data is not None
    return murmur_utf8(np.frombuffer(offsets, np.int32), np.frombuffer(data, np.uint8))[0]


KINDS: dict[str, tuple[Callable[[int], Any], Callable[[Any], np.ndarray]]] = {
    "BIGINT": (lambda at: at * 7919 - 50_000, lambda x: murmur_int64(np.array(x, np.int64))[0]),
    "DOUBLE": (lambda at: at / 7 - 1000.0, lambda x: murmur_float64(np.array(x))[0]),
    "STRING": (lambda at: f"client-{at}é", of_texts),
}


SIZES = (1, 100, 4096, 30_000)


def theirs(spark: SparkSession, streams: list[list[Any]], lg_k: int = 12) -> list[bytes]:
    """Return Spark's sketch of each stream of values."""
    groups = [group for group, values in enumerate(streams) for _ in values]
    values = [value for values in streams for value in values]
    frame = spark.createDataFrame(pa.table({"g": groups, "x": values}))
    found = frame.groupBy("g").agg(sf.expr(f"theta_sketch_agg(x, {lg_k})").alias("sketch"))
    images: list[bytes] = found.orderBy("g").toArrow()["sketch"].to_pylist()
    return images


@pytest.mark.parametrize("kind", KINDS)
def test_sparks_sketch_is_ours(spark: SparkSession, kind: str) -> None:
    make, hashes = KINDS[kind]
    streams = [[make(at) for at in range(size)] for size in SIZES]
    for values, image in zip(streams, theirs(spark, streams), strict=True):
        ours = GroupedTheta(1, 12)
        ours.update(None, hashes(values))
        assert GroupedTheta.from_images([image]).to_bytes() == ours.to_bytes(), len(values)


def test_spark_reads_our_images(spark: SparkSession) -> None:
    images, estimates = list[bytes](), list[float]()
    for size in (0, *SIZES):
        ours = GroupedTheta(1, 12)
        ours.update(None, murmur_int64(np.arange(size))[0])
        images.append(ours.image(0))
        estimates.append(ours.distinct(0.95).value[0])
    table = pa.table({"at": range(len(images)), "sketch": pa.array(images, pa.binary())})
    frame = spark.createDataFrame(table).selectExpr("at", "theta_sketch_estimate(sketch) AS n")
    found = frame.orderBy("at").toArrow()["n"].to_pylist()
    assert found == [pytest.approx(estimate, abs=1) for estimate in estimates]


def test_spark_compares_our_sets_with_its_own(spark: SparkSession) -> None:
    left, right = np.arange(20_000), np.arange(15_000, 40_000)
    ours, other = GroupedTheta(1, 12), GroupedTheta(1, 12)
    ours.update(None, murmur_int64(left)[0])
    other.update(None, murmur_int64(right)[0])
    table = pa.table(
        {
            "a": pa.array([ours.image(0)], pa.binary()),
            "b": pa.array(theirs(spark, [right.tolist()]), pa.binary()),
        }
    )
    found = (
        spark.createDataFrame(table)
        .selectExpr(
            "theta_intersection(a, b) AS both",
            "theta_difference(a, b) AS lost",
            "theta_sketch_estimate(theta_intersection(a, b)) AS n",
        )
        .toArrow()
        .to_pylist()[0]
    )
    compared = Compared.of(ours, other)
    # Spark's own sketch was not cut to its k smallest hashes: its theta is a little larger.
    assert compared.intersection(0.999)[0].holds(found["n"])
    read = GroupedTheta.from_images([found["both"], found["lost"]], 13)
    shares, held = read.shares, read.held
    assert held[0] >= compared.both[0]
    assert abs(held[0] / shares[0] - 5_000) < 700
    assert abs(held[1] / shares[1] - 15_000) < 1_500
