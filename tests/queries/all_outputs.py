"""Every aggregate of a population in one query, and its exact answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from synopses.model.estimate import Bound
from tests.queries.asking import ARROW, ask, truth
from tests.truth import draw, keeps_its_promise

SELECTIVITIES = {1.0: "", 0.01: " WHERE ok"}


OUTPUTS = {
    "rows": "COUNT(*)",
    "count": "COUNT(bytes)",
    "total": "SUM(bytes)",
    "whole total": "SUM(client)",
    "average": "AVG(bytes)",
    "least": "MIN(bytes)",
    "greatest": "MAX(client)",
    "variance": "VARIANCE(bytes)",
    "deviation": "STDDEV(client)",
    "clients": "COUNT(DISTINCT client)",
    "domains": "COUNT(DISTINCT domain)",
    "both": "DISTINCT_BOTH(client, bytes > 0.5, domain = 'd1')",
    "only": "DISTINCT_ONLY(client, bytes > 0.5, domain = 'd1')",
    "alike": "JACCARD(client, bytes > 0.5, domain <> 'd1')",
    "p90": "QUANTILE(bytes, 0.9)",
    "median": "MEDIAN(client)",
    "share": "CDF(bytes, 0.5)",
    "tail share": "CDF(client, 3)",
    "top": "TOP(client, 5)",
    "frequent": "FREQUENT(client, 0.1)",
    "surely frequent": "FREQUENT(client, 0.05 NO FALSE POSITIVES)",
    "buckets": "HISTOGRAM(bytes, [0, 0.5, 1, 3])",
    "ratio": "SUM(bytes) / COUNT(*)",
    "difference": "SUM(client - bytes)",
}


SHARES = {"frequent": 0.1, "surely frequent": 0.05}


WITH_OWN_SAMPLES = (
    "total",
    "whole total",
    "average",
    "clients",
    "both",
    "only",
    "alike",
    "ratio",
)
"""Outputs whose values and intervals depend on the weighted and hashed samples of a stream."""


GROUPED = {"one row": "", "grouped": " GROUP BY domain"}


def population(name: str, size: int) -> pa.RecordBatch:
    """A stream in the distribution's own order: bytes as drawn, client their whole part."""
    rng = np.random.default_rng([20261121, size])
    values = draw(name, 7, size)
    client = np.clip(np.floor(values), -1e6, 1e6).astype(np.int64)
    sizes = np.where(rng.random(size) < 0.01, np.nan, values)
    domain = np.minimum(rng.zipf(1.5, size), 7)
    columns = [
        pa.array(np.arange(size), pa.timestamp("us")),
        pa.array([f"d{d}" for d in domain], mask=rng.random(size) < 0.02),
        pa.array(client, pa.int64()),
        pa.array(sizes, mask=rng.random(size) < 0.05),
        pa.array(rng.random(size) < 0.01),
        pa.array((client % 30).astype(np.int32)).view(pa.date32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def query_of(
    selectivity: float, grouped: str, outputs: Iterable[str] = tuple(OUTPUTS)
) -> BoundQuery:
    """Return one query of some outputs; each is at the query's confidence by itself."""
    keys = "domain, " if GROUPED[grouped] else ""
    selected = ", ".join(f'{OUTPUTS[name]} AS "{name}"' for name in outputs)
    return ask(f"{keys}{selected} FROM requests{SELECTIVITIES[selectivity]}{GROUPED[grouped]}")


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact answer by group: its outputs, and how often each client occurs."""

    outputs: Mapping[Any, Mapping[str, Any]]
    counts: Mapping[Any, Counter[int]]

    @classmethod
    def of(cls, query: BoundQuery, data: pa.RecordBatch) -> Truth:
        counts: dict[Any, Counter[int]] = defaultdict(Counter)
        for row in data.select(["domain", "client", "ok"]).to_pylist():
            if row["ok"] or query.where is None:
                counts[row["domain"] if query.groups else None][row["client"]] += 1
        exact = finish(query, truth(query, data))
        return cls({row.get("domain"): row for row in exact.rows()}, counts)

    def held_by(self, answer: Answer, at: int, row: Mapping[str, Any], output: str) -> bool:
        """Whether one value of the answer holds it: a whole list at once."""
        if output == "top":
            return _list_holds(row["top"], self.counts[row.get("domain")])
        if output in SHARES:
            counts, positives = self.counts[row.get("domain")], output == "surely frequent"
            bound = row[f"{output}_bound"]
            return keeps_its_promise(
                row[output], bound, counts, SHARES[output], positives=positives
            )
        if output == "buckets":
            exact = self.outputs[row.get("domain")][output]
            return all(
                found["low"] <= true["count"] <= found["high"]
                for found, true in zip(row[output], exact, strict=True)
            )
        exact, found = self.outputs[row.get("domain")][output], answer.estimate(at, output)
        if exact is None or (row[output] is None and found.bound is Bound.EXACT):
            return exact is None and row[output] is None
        slack = 1e-9 * max(abs(exact), 1.0)  # Sums of doubles differ in their last bits.
        return found.low - slack <= exact <= found.high + slack


def _list_holds(items: Sequence[Mapping[str, Any]], counts: Counter[int]) -> bool:
    outside = set(counts) - {item["value"] for item in items}
    most = max((counts[client] for client in outside), default=0)
    return all(
        item["low"] <= counts[item["value"]] <= item["high"]
        and (not item["guaranteed"] or counts[item["value"]] >= most)
        for item in items
    )
