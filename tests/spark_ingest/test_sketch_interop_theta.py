"""Theta sketches in both directions: Spark reads ours, we read Spark's, and they are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from synopses.hashing import murmur_float64, murmur_int64, murmur_utf8
from synopses.theta import GroupedTheta
from synopses.theta_sets import Compared

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


def frame(spark: SparkSession, values: list[Any]) -> DataFrame:
    return spark.createDataFrame(pa.table({"g": [0] * len(values), "x": values}))


def theirs(spark: SparkSession, values: list[Any], lg_k: int = 12) -> bytes:
    found = frame(spark, values).selectExpr(f"theta_sketch_agg(x, {lg_k}) AS sketch").toArrow()
    image: bytes = found["sketch"][0].as_py()
    return image


@pytest.mark.parametrize("size", [1, 100, 4096, 30_000])
@pytest.mark.parametrize("kind", KINDS)
def test_sparks_sketch_is_ours(spark: SparkSession, kind: str, size: int) -> None:
    make, hashes = KINDS[kind]
    values = [make(at) for at in range(size)]
    ours = GroupedTheta(1, 12)
    ours.update(None, hashes(values))
    assert GroupedTheta.from_images([theirs(spark, values)]).to_bytes() == ours.to_bytes()


@pytest.mark.parametrize("size", [0, 1, 100, 30_000])
def test_spark_reads_our_images(spark: SparkSession, size: int) -> None:
    ours = GroupedTheta(1, 12)
    ours.update(None, murmur_int64(np.arange(size))[0])
    table = pa.table({"sketch": pa.array([ours.image(0)], pa.binary())})
    found = spark.createDataFrame(table).selectExpr("theta_sketch_estimate(sketch) AS n").toArrow()
    assert found["n"][0].as_py() == pytest.approx(ours.distinct(0.95).value[0], abs=1)


def test_spark_compares_our_sets_with_its_own(spark: SparkSession) -> None:
    left, right = np.arange(20_000), np.arange(15_000, 40_000)
    ours, other = GroupedTheta(1, 12), GroupedTheta(1, 12)
    ours.update(None, murmur_int64(left)[0])
    other.update(None, murmur_int64(right)[0])
    table = pa.table(
        {
            "a": pa.array([ours.image(0)], pa.binary()),
            "b": pa.array([theirs(spark, right.tolist())], pa.binary()),
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
