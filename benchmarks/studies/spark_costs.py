"""What a micro-batch of summaries takes on more cores than are here: a model of four costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.measure import Report
from spark_ingest.tree_merge import FANOUT

CORES = (1, 2, 8, 32, 128)
TUPLES = 100_000_000  # Of the micro-batch that is foreseen,
PARTITIONS_PER_CORE = 4  # ... in so many tasks for each core.


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """What was measured on one core, in seconds.

    batch: of a micro-batch with a tree, however small. partition: of a task, without its tuples.
    tuple: of one tuple, read and summarised. merge: of one partition's summaries, folded into
    others.
    """

    batch: float
    partition: float
    tuple: float
    merge: float

    @classmethod
    def measured(
        cls,
        *,
        few_s: float,
        few: int,
        many_s: float,
        many: int,
        full_s: float,
        tuples: int,
        merge: float,
    ) -> SparkCosts:
        """From three measurements on one core.

        Args:
          few_s, many_s: hardly any tuples in so few and in so many partitions, both more than the
            driver merges itself.
          full_s: so many tuples in as many partitions. merge: as it is kept.
        """
        partition = max((many_s - few_s) / (many - few) - merge, 0.0)
        batch = max(few_s - few * (partition + merge), 0.0)
        return cls(batch, partition, max(full_s - many_s, 0.0) / tuples, merge)

    def seconds(self, tuples: int, partitions: int, cores: int) -> float:
        """How long a micro-batch takes.

        Tasks run in waves of as many as there are cores; then FANOUT summaries become one, level by
        level, each level as long as one such merge as long as there are cores for all of them. Of
        so few that the driver merges them it says a stage too much.
        """
        waves = math.ceil(partitions / cores)
        read = waves * (self.partition + self.tuple * tuples / partitions)
        sizes = [partitions]
        while sizes[-1] > 1:
            sizes.append(math.ceil(sizes[-1] / FANOUT))
        merged = sum(
            math.ceil(above / cores) * min(left, FANOUT) * self.merge
            for left, above in pairwise(sizes)
        )
        return self.batch + read + merged


def foreseen(costs: SparkCosts, *, measured_s: float, tuples: int, partitions: int) -> Report:
    """The costs, what they say of two cores beside what was measured there, and of more cores."""
    said = costs.seconds(tuples, partitions, 2)
    rows: Sequence[Sequence[str]] = [
        [
            str(cores),
            f"{cores * PARTITIONS_PER_CORE}",
            f"{(took := costs.seconds(TUPLES, cores * PARTITIONS_PER_CORE, cores)):.1f}",
            f"{TUPLES / took / 1e6:.1f} M",
            f"{costs.seconds(TUPLES, PARTITIONS_PER_CORE, 1) / took / cores:.0%}",
        ]
        for cores in CORES
    ]
    return Report(
        claim=f"What the model in `benchmarks/studies/spark_costs.py` "
        f"foresees for {TUPLES:,} tuples in "
        "Parquet files, read by the workers, in one micro-batch.",
        columns=["cores", "partitions", "seconds", "tuples/s", "of linear"],
        rows=rows,
        notes=[
            (
                f"Measured on one core: {costs.batch * 1e3:.0f} ms a micro-batch, "
                f"{costs.partition * 1e3:.1f} ms a partition, {costs.tuple * 1e9:.0f} ns a tuple, "
                f"{costs.merge * 1e3:.2f} ms to merge one partition's summaries."
            ),
            (
                f"On two cores it says {said:.2f} s for {tuples:,} tuples in {partitions} "
                f"partitions; measured {measured_s:.2f} s ({measured_s / said:.2f} times as "
                "long: both share memory, caches and the driver's core here)."
            ),
            (
                "It leaves out what a cluster adds: reading from another machine, stragglers, and "
                "the network that each partition sends its summaries over, kilobytes to megabytes."
            ),
        ],
    )
