"""Precision targets and contracts: which values meet theirs, and what happens to the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract, Target, TargetKind
from shedder.errors import PrecisionUnavailable
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.python_rows import plain_rows
from shedder.queries.answers.text_format import shown
from shedder.queries.evidence.confidence_budget import SLACK
from shedder.queries.evidence.output_column import OutputColumn
from shedder.queries.evidence.value_ranges import Mask
from synopses.model.estimate import Bound

# A share of a moment in time has no meaning: these meet a relative target only when known.
_NO_RATIO = frozenset({ColumnType.TIMESTAMP, ColumnType.DATE})
_NO_DISTANCE = frozenset({ColumnType.VARCHAR, ColumnType.BOOLEAN})


def meets(
    column: OutputColumn,
    target: Target,
    confidence: float,
    rank_errors: NDArray[np.float64] | None = None,
) -> Mask:
    """Per group, whether the value is as precise as asked, at the confidence that was asked.

    An exact value meets every target, a bound of 'none' meets no target.

    Args:
      column: an approximate output.
      target: of the query. ABSOLUTE is in the column's unit (TIMESTAMP: microseconds; DATE: days).
      confidence: of the query.
      rank_errors: float64 [groups] for quantiles whose rank error is known.
    """
    assert column.bound is not None, column.name
    assert column.reach is not None, column.name
    assert column.size is not None, column.name
    exact: Mask = column.bound == Bound.EXACT
    if column.confidence < confidence - SLACK:
        return exact
    if target.kind is TargetKind.RANK:
        if rank_errors is None:
            return exact
        close: Mask = (rank_errors <= target.size) & (column.bound != Bound.NONE)
        null: Mask = column.value.is_null().to_numpy(zero_copy_only=False)
        return exact | (close & ~null)
    allowed = np.full(len(exact), target.size)
    if target.kind is TargetKind.RELATIVE:
        allowed = target.size * column.size
        if column.kind in _NO_RATIO:
            allowed = np.zeros(len(exact))
    if column.kind in _NO_DISTANCE:
        allowed = np.zeros(len(exact))
    return exact | (column.reach <= allowed)


def omitted(value: pa.Array[Any], met: Mask) -> pa.Array[Any]:
    """The values with null where the target is missed; their intervals stay."""
    kept: pa.Array[Any] = pc.if_else(pa.array(met), value, pa.nulls(len(value), value.type))
    return kept


def refuse(query: BoundQuery, answer: Answer) -> None:
    """Hold the contract FAIL.

    Raises:
      PrecisionUnavailable: a value misses its target; the message shows the first and how many.
    """
    if query.contract is not Contract.FAIL or answer.met is not False:
        return
    missed = [(name, answer.table[name + "_met"].to_pylist()) for name in answer.approximate]
    count = sum(flag is False for _, flags in missed for flag in flags)
    total = sum(len(flags) for _, flags in missed)
    name, flags = next((name, flags) for name, flags in missed if False in flags)
    [row] = plain_rows(answer.table.slice(flags.index(False), 1))
    plain = [row[key] for key in answer.outputs if key not in answer.approximate]
    where = f" of group {tuple(plain)!r}" if plain else ""
    found = "a list with wider counts"
    if name + "_low" in row:
        ends = row[name + "_low"], row[name + "_high"]
        found = shown(row[name], *ends, row[name + "_bound"], answer.confidence)
    raise PrecisionUnavailable(
        f"{count} of {total} values miss {target_text(query)}: {name}{where} is {found}; "
        "ask for less, or ELSE WIDEN, OMIT or EXACT"
    )


def target_text(query: BoundQuery) -> str:
    """The target as the language writes it."""
    target = query.target
    if target is None:
        return "no target"
    size = 100 * target.size if target.kind is TargetKind.RELATIVE else target.size
    return f"WITHIN {size:g} {target.kind.value} CONFIDENCE {100 * query.confidence:g} PERCENT"
