"""Cases: answered questions, taken apart into claims that can be compared with the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shedder.cql.expressions.expression import (
    BY_TIME,
    JOINS,
    LISTS,
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
)
from shedder.cql.expressions.histograms import counts_of, is_histogram
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.certification.value_verdict import Claim

# Which sources answer an aggregate, where an answer has several.
_OWN_SOURCES = {
    AggregateFunction.COUNT: {"count", "moments"},
    AggregateFunction.COUNT_DISTINCT: {"hll", "theta"},
    AggregateFunction.QUANTILE: {"log-buckets", "kll", "req"},
    **{function: {"frequent"} for function in LISTS},
    **{function: {"first and last"} for function in BY_TIME},
    **{function: {"cross moments"} for function in OF_PAIRS},
    **{function: {"count-min"} for function in JOINS},
    **{function: {"theta"} for function in SET_FUNCTIONS},
}
_BUCKET = re.compile(r"(?P<name>.*)\[(?P<at>\d+)\]", re.DOTALL)
_MOMENTS = {"moments"}
_THINNED = "thinned panes"  # ... and this answers every one, where tuples were skipped.

Key = tuple[Any, ...]
"""The values of a group's keys, as Arrow gives them to Python."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A question and its answer.

    number: of the question, in the report. size_bytes: of what it was answered from, if known.
    """

    number: int
    query: BoundQuery
    answer: Answer
    size_bytes: int | None = None

    @property
    def judgeable(self) -> bool:
        """Return whether every group of the answer can be told by its outputs."""
        return None not in self._key_columns()

    def aggregates(self) -> list[tuple[str, Aggregate]]:
        """Outputs that are an aggregate and nothing else: name and aggregate.

        Of a histogram, each bucket: h[0], h[1] ...
        """
        found: list[tuple[str, Aggregate]] = []
        for output in self.query.outputs:
            if isinstance(output.expression, Aggregate):
                found.append((output.name, output.expression))
            elif is_histogram(output.expression):
                counts = enumerate(counts_of(output.expression))
                found += [(f"{output.name}[{at}]", count) for at, count in counts]
        return found

    def keys(self) -> list[Key | None]:
        """The key of each row of the answer; None for the row of `others`."""
        columns = [self.answer.table[name].to_pylist() for name in self._key_columns() if name]
        keys: list[Key | None] = [()] * len(self.answer.table)  # HAVING may show no row.
        if columns:
            keys = list(zip(*columns, strict=True))
        if self.answer.others is not None:
            keys[self.answer.others] = None
        return keys

    def claims(self, name: str) -> Iterator[tuple[Key, Claim]]:
        """What the answer says of one output, group by group; without the row of `others`."""
        table = self.answer.table
        bucket = _BUCKET.fullmatch(name)
        if bucket is not None and name not in table.column_names:
            at = int(bucket["at"])
            for key, claim in self.claims(bucket["name"]):
                yield key, _of_bucket(claim, None if claim.value is None else claim.value[at])
            return
        values, met = table[name].to_pylist(), table[name + "_met"].to_pylist()
        bounds = table[name + "_bound"].to_pylist()
        listed = name + "_low" not in table.column_names
        nothing = [None] * len(values)
        lows = nothing if listed else table[name + "_low"].to_pylist()
        highs = nothing if listed else table[name + "_high"].to_pylist()
        rows = zip(self.keys(), values, lows, highs, bounds, met, strict=True)
        for key, value, low, high, bound, flag in rows:
            if key is not None:
                yield key, Claim(value, low, high, bound, flag)

    def source(self, aggregate: Aggregate) -> str:
        """What this one value was made from, as far as the answer's sources tell."""
        own = _OWN_SOURCES.get(aggregate.function, _MOMENTS) | {_THINNED}
        sources = self.answer.sources
        return "+".join(sorted(own.intersection(sources)) or sources) or "unknown"

    def _key_columns(self) -> list[str | None]:
        by_expression = {output.expression: output.name for output in self.query.outputs}
        return [by_expression.get(group) for group in self.query.groups]


def _of_bucket(claim: Claim, bucket: Mapping[str, Any] | None) -> Claim:
    """What is claimed of one bucket of a histogram."""
    if bucket is None:
        return claim
    bound = (
        "exact" if claim.bound == "interval" and bucket["low"] == bucket["high"] else claim.bound
    )
    return Claim(bucket["count"], bucket["low"], bucket["high"], bound, claim.met)


def aggregate_name(aggregate: Aggregate) -> str:
    """The aggregate as reports call it."""
    match aggregate.function:
        case AggregateFunction.COUNT if aggregate.argument is None:
            return "COUNT(*)"
        case AggregateFunction.COUNT_DISTINCT:
            return "COUNT(DISTINCT)"
        case function:
            return str(function.value)
