"""Two hundred standing aggregates of all kinds over one stream, for what is said of overload."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.workloads.trades import CREATE

WINDOW = "[RANGE INTERVAL '2' SECOND SLIDE INTERVAL '1' SECOND]"
UNGROUPED = 24
GROUPED = 15
JOINS = 5
AGGREGATES = 5 * (UNGROUPED + GROUPED) + JOINS
GROUPS = 20

__all__ = ["AGGREGATES", "CREATE", "queries"]


def queries(stream: str = "trades", window: str = WINDOW) -> Iterator[tuple[str, str]]:
    """Name and text: counts, sums of heavy tails, distinct, quantiles, lists, group-bys, joins.

    Each has expressions of its own, so that none shares its panes with another.
    """
    for at in range(UNGROUPED):
        yield (
            f"all_{at}",
            (
                f"SELECT COUNT(*) AS n, SUM(value * {at + 1}) AS total, "
                f"COUNT(DISTINCT key + {at}) AS keys, QUANTILE(value + {at}, 0.99) AS tail, "
                f"TOP(key + {at}, 10) AS busiest FROM {stream} {window}"
            ),
        )
    for at in range(GROUPED):
        yield (
            f"by_{at}",
            (
                f"SELECT key % {GROUPS + at} AS shard, COUNT(*) AS n, SUM(value + {at}) AS total, "
                f"AVG(value * {at + 1}) AS mean, COUNT(DISTINCT key + {at}) AS keys, "
                f"QUANTILE(value + {at}, 0.5) AS middle "
                f"FROM {stream} {window} GROUP BY key % {GROUPS + at}"
            ),
        )
    for at in range(JOINS):
        yield (
            f"joined_{at}",
            f"SELECT JOIN_SIZE(key + {at}, key % {GROUPS + at}) AS pairs FROM {stream} {window}",
        )
