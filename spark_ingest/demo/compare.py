"""Approximate beside exact: rows for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from shedder.cql.expressions.expression import LISTS
from shedder.queries.answers.text_format import shown
from shedder.queries.certification.claims import Case
from shedder.queries.certification.value_verdict import Claim, number
from spark_ingest.baseline import SealedStream, exact

_GROUPS_SHOWN = 3
_ITEMS_SHOWN = 3
_ROUNDING = 1e-9


def compare(
    spark: SparkSession, stream: SealedStream, tells: str, case: Case
) -> Iterator[Mapping[str, Any]]:
    """The first groups of a case, each value beside Spark's exact one.

    Yields:
      tells, what, approximate, exact, off, held, source: as beside_exact draws them.
    """
    truth = exact(spark, stream, case.query, case.answer)
    keys = [truth[f"g{at}"].to_pylist() for at in range(len(case.query.groups))]
    at_key = {key: at for at, key in enumerate(zip(*keys, strict=True) if keys else [()])}
    for name, aggregate in case.aggregates():
        column = truth[f"a{case.query.aggregates.index(aggregate)}"]
        for key, claim in list(case.claims(name))[:_GROUPS_SHOWN]:
            true = column[at_key[key]].as_py() if key in at_key else None
            base = {"tells": tells, "source": case.source(aggregate)}
            what = " ".join([name, *(str(part) for part in key)])
            if aggregate.function in LISTS:
                yield from _items(base, claim, true or [], case)
            else:
                yield base | {"what": what} | _beside(claim, true, case.answer.confidence)


def _items(
    base: Mapping[str, Any], claim: Claim, true: list[Any], case: Case
) -> Iterator[Mapping[str, Any]]:
    counts = {item["value"]: item["count"] for item in true}
    for item in (claim.value or [])[:_ITEMS_SHOWN]:
        bound = "exact" if item["low"] == item["high"] else "interval"
        one = Claim(item["count"], item["low"], item["high"], bound, claim.met)
        rows = _beside(one, counts.get(item["value"]), case.answer.confidence)
        if item["value"] not in counts and counts:
            # One that is not in the exact list has at most as many as the last one there.
            least = min(counts.values())
            rows |= {"exact": f"≤ {shown(least)}", "held": item["low"] <= least}
        yield {**base, "what": str(item["value"]), **rows}


def _beside(claim: Claim, true: Any, confidence: float) -> dict[str, Any]:
    approximate = shown(claim.value, claim.low, claim.high, claim.bound, confidence)
    value, exactly = number(claim.value), number(true)
    off = ""
    held = claim.bound == "none" or claim.value == true
    is_known = isinstance(value, float) or (value is None and claim.bound == "interval")
    if is_known and isinstance(exactly, float):
        slack = _ROUNDING * abs(exactly)
        low = value if claim.bound == "exact" else _end(claim.low, -float("inf"))
        high = value if claim.bound == "exact" else _end(claim.high, float("inf"))
        held = low - slack <= exactly <= high + slack
    if isinstance(value, float) and isinstance(exactly, float):
        off = "0" if abs(value - exactly) <= slack else _share(abs(value - exactly), exactly)
    return {"approximate": approximate, "exact": shown(true), "off": off, "held": held}


def _end(value: Any, missing: float) -> float:
    return missing if value is None else float(number(value))


def _share(off: float, exactly: float) -> str:
    return f"{off / abs(exactly):.2%}" if exactly else f"{off:.3g}"
