"""Precision progress: the distance of an answer to its target, and the delta of a look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract, TargetKind
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from synopses.intervals.sequential_looks import alone_confidence, look_confidence
from synopses.model.estimate import Bound

_BEYOND = float("inf")


def at_look(query: BoundQuery, look: int, *, alone: bool = False) -> BoundQuery:
    """The query as one look asks it: at the confidence that this look may spend.

    alone: the look is the first one, and met the target so well that none follows it.
    """
    return replace(query, confidence=_confidence(query, look, alone=alone))


def claimed(query: BoundQuery, look: int, evidence: Evidence, *, alone: bool = False) -> Evidence:
    """What a look found, at the confidence that all looks together keep: that of the query.

    alone: as `at_look` was asked.
    """
    part = (1.0 - _confidence(query, look, alone=alone)) / (1.0 - query.confidence)
    return evidence.changed(lambda each: _claiming(each, part))


def _claiming(evidence: Evidence, part: float) -> Evidence:
    estimates = {
        aggregate: replace(found, confidence=1.0 - (1.0 - found.confidence) / part)
        for aggregate, found in evidence.estimates.items()
    }
    missing = evidence.missing
    if missing is not None:
        missing = replace(missing, confidence=1.0 - (1.0 - missing.confidence) / part)
    return replace(evidence, estimates=estimates, missing=missing)


def _confidence(query: BoundQuery, look: int, *, alone: bool) -> float:
    if alone:
        return alone_confidence(query.confidence)
    return look_confidence(look, query.confidence)


def error_of(query: BoundQuery, evidence: Evidence) -> float:
    """The widest interval of an answer in units of what the target allows; 1 or less meets it.

    Returns: inf where some value has no interval, where there is no row to judge by, and where a
    value misses by a measure that has no ratio (a list, a text). Outputs that `deciding` leaves
    out are not looked at.
    """
    assert query.target is not None
    answer = finish(replace(query, contract=Contract.WIDEN), evidence)
    if answer.met is None:
        return _BEYOND
    columns = deciding(query, answer)
    met = all(all(answer.table[column + "_met"].to_pylist()) for column in columns)
    if query.target.kind is TargetKind.RANK:
        errors = [found.max(initial=0.0) for found in evidence.rank_errors.values()]
        worst = float(max(errors, default=_BEYOND) / query.target.size)
        return min(1.0, worst) if met else worst if worst > 1.0 else _BEYOND
    if met:
        return min(1.0, max((_ratio(query, answer, c) for c in columns), default=0.0))
    worst = max(_ratio(query, answer, column) for column in columns)
    return worst if worst > 1.0 else _BEYOND


def deciding(query: BoundQuery, answer: Answer) -> list[str]:
    """The approximate outputs that decide whether an answer is narrow enough to be shown.

    An output none of whose values has a bound gets none by reading a larger part. Where the
    contract lets values miss (WIDEN, OMIT) and another output has an interval, the output without
    a bound does not decide.
    """
    names = list(answer.approximate)
    if query.contract in (Contract.EXACT, Contract.FAIL):
        return names
    bounds = {name: set(answer.table[name + "_bound"].to_pylist()) for name in names}
    if not any(Bound.INTERVAL.word in found for found in bounds.values()):
        return names
    return [name for name in names if bounds[name] != {Bound.NONE.word}]


def _ratio(query: BoundQuery, answer: Answer, column: str) -> float:
    """The widest interval of one column by what the target allows it."""
    assert query.target is not None
    kind = answer.table.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        if not all(answer.table[column + "_met"].to_pylist()):
            return _BEYOND
        # How far a list is inside of its target is not known.
        return float(set(answer.table[column + "_bound"].to_pylist()) != {Bound.EXACT.word})
    bound = answer.table[column + "_bound"].to_numpy()
    value, low, high = (  # Whole numbers beyond 2^53 are rounded.
        answer.table[column + end].cast(pa.float64(), safe=False).to_numpy()
        for end in ("", "_low", "_high")
    )
    allowed = np.full(len(value), query.target.size)
    if query.target.kind is TargetKind.RELATIVE:
        allowed = query.target.size * np.abs(value)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.maximum(high - value, value - low) / allowed
    ratio = np.where(np.isnan(ratio) | (bound == Bound.NONE.word), _BEYOND, ratio)
    return float(np.where(bound == Bound.EXACT.word, 0.0, ratio).max(initial=0.0))
