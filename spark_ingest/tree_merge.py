"""From the summaries of many partitions to one: in a tree on the executors, or by the driver."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from shedder.engine.remote_summaries.summary_builder import Plans, built_of
from shedder.engine.remote_summaries.wire_format import Summaries
from spark_ingest.executors import BUILT, merger

FANOUT = 16  # Summaries that one task merges.

DRIVER_MAX = 4
"""Summaries that the driver merges itself: so few take it less than another stage takes Spark."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What all partitions come to. poison: rows that were kept aside. data: of Summaries."""

    poison: int
    data: bytes


def gathered(built: DataFrame, partitions: int, plans: str) -> Gathered:
    """Run it, and make one of all.

    Args:
      built: a row (executors.BUILT) in each partition, of which there are so many.
      plans: as text; those that they were built by.
    """
    while partitions > FANOUT:
        partitions = -(-partitions // FANOUT)
        built = built.repartition(partitions).mapInArrow(merger(plans), BUILT)
    if partitions > DRIVER_MAX:  # Not coalesce, which would have one task do all before it, too.
        built = built.repartition(1).mapInArrow(merger(plans), BUILT)
    rows = built.collect()
    images, poison = [bytes(row.data) for row in rows], sum(row.poison for row in rows)
    if len(images) == 1:
        return Gathered(poison, images[0])
    whole = built_of([Summaries.from_bytes(image) for image in images], Plans.from_json(plans))
    return Gathered(poison, whole.to_bytes())
