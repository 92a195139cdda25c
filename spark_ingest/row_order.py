"""In which order the rows of a partition come: the same one, whenever they are computed again."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from shedder.cql.statements.bound_query import StreamSchema
from shedder.streams.batches import arrow_schema


def in_order(schema: StreamSchema) -> list[str]:
    """Columns by which rows are sorted: the event time, then all others.

    So that rows of equal times come in the same order again.
    """
    names = arrow_schema(schema).names
    return [schema.time_column, *(name for name in names if name != schema.time_column)]


def is_shuffled(frame: DataFrame) -> bool:
    """Return whether other tasks hand rows to the frame's, in whatever order these have ended.

    A micro-batch hides its plan, but not of which partitions its own are made.
    """
    waiting, known = [frame._jdf.queryExecution().toRdd()], set[int]()
    while waiting:
        rows = waiting.pop()
        if rows.id() in known:
            continue
        known.add(rows.id())
        of: Any = rows.dependencies()
        for at in range(of.size()):
            dependency = of.apply(at)
            if dependency.getClass().getSimpleName() == "ShuffleDependency":
                return True
            waiting.append(dependency.rdd())
    return False
