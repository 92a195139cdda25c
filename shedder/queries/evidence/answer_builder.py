"""From evidence about aggregates to the answer of a query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract, RangeWindow
from shedder.queries.answers.answer import CERTAIN, COMPANION, ESTIMATE, ROLE, Answer
from shedder.queries.evidence.arrow_columns import taken
from shedder.queries.evidence.confidence_budget import SLACK, at_share
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.having_order_limit import Decided, decide
from shedder.queries.evidence.output_column import OutputColumn
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.precision_targets import meets, omitted, refuse
from shedder.queries.evidence.shown_groups import Shown, all_at_once, for_shown, missing_first
from shedder.queries.evidence.value_ranges import Mask
from synopses.model.estimate import Bound

_WORDS = pa.array([bound.word for bound in Bound], pa.string())
_ROLES = {role: {ROLE: role} for role in (ESTIMATE, COMPANION)}


def finish(query: BoundQuery, evidence: Evidence) -> Answer:
    """Make the outputs of a query from evidence about its aggregates.

    Output expressions are evaluated at the point estimates, their ends by interval arithmetic.
    HAVING, ORDER BY and LIMIT act on the point estimates. Intervals hold for the groups that are
    shown (`for_shown`), and `certain` says of which groups no interval straddles the decision when
    all hold at once (`all_at_once`). Values are checked against the target, and the contract is
    held: OMIT makes values null, FAIL raises; for EXACT see `needs_exact`.

    Returns:
      The answer; its confidence is that of the least certain column, each value by itself.

    Raises:
      PrecisionUnavailable: the contract is FAIL and a value misses its target.
    """
    decided, shown = chosen(query, evidence)
    groups = Groups(query, shown.evidence)
    columns = [groups.output(output) for output in query.outputs]
    fields: list[pa.Field[Any]] = []
    arrays: list[pa.Array[Any]] = []
    for output, column in zip(query.outputs, columns, strict=True):
        met = _met(query, column, _rank_errors(shown.evidence, output.expression))
        _add(fields, arrays, column, met, query.contract)
    arrays = _taken(arrays, decided.rows, evidence.groups)
    if decided.certain is not None:
        fields.append(pa.field(CERTAIN, pa.bool_(), metadata=_ROLES[COMPANION]))
        arrays.append(pa.array(decided.certain))
    answer = Answer(
        pa.table(arrays, schema=pa.schema(fields)),
        query=query.text,
        start_us=evidence.start_us,
        end_us=evidence.end_us,
        resolution_us=query.window.resolution_us if isinstance(query.window, RangeWindow) else 0,
        watermark_us=evidence.watermark_us,
        position=evidence.position,
        late=evidence.late,
        complete=evidence.complete,
        confidence=min((column.confidence for column in columns), default=1.0),
        thinning=evidence.thinning,
        archive_share_read=evidence.archive_share_read,
        archive=evidence.archive,
        sources=evidence.sources,
        missing=evidence.missing,
        others=None if evidence.others is None else len(decided.rows) - 1,
        notes=(*evidence.notes, *_notes(query, evidence, columns, decided, shown.share)),
    )
    refuse(query, answer)
    return answer


def shown_evidence(query: BoundQuery, evidence: Evidence) -> Evidence:
    """The evidence of the rows that `finish` shows, with the intervals that it shows."""
    if query.having is None and query.limit is None:
        return evidence
    decided, shown = chosen(query, evidence)
    return shown.evidence.take(decided.rows)


def chosen(query: BoundQuery, evidence: Evidence) -> tuple[Decided, Shown]:
    """The groups that are shown, and the evidence whose intervals hold for them."""
    groups = Groups(query, evidence)
    together = Groups(query, all_at_once(groups))
    decided = decide(groups, together, missing_first(together))
    rows = decided.rows
    rows = rows if evidence.others is None else rows[rows != evidence.others]
    return decided, for_shown(groups, rows)


def needs_exact(answer: Answer) -> bool:
    """Return whether some value misses its target, so that contract EXACT asks the archive."""
    return answer.met is False


def _rank_errors(evidence: Evidence, node: Expression) -> NDArray[np.float64] | None:
    return evidence.rank_errors.get(node) if isinstance(node, Aggregate) else None


def _met(
    query: BoundQuery, column: OutputColumn, rank_errors: NDArray[np.float64] | None
) -> Mask | None:
    if query.target is None or column.bound is None:
        return None
    return meets(column, query.target, query.confidence, rank_errors)


def _add(
    fields: list[pa.Field[Any]],
    arrays: list[pa.Array[Any]],
    column: OutputColumn,
    met: Mask | None,
    contract: Contract,
) -> None:
    """Append one output and its companions."""

    def add(suffix: str, array: pa.Array[Any], role: bytes | None) -> None:
        metadata = None if role is None else _ROLES[role]
        fields.append(pa.field(column.name + suffix, array.type, metadata=metadata))
        arrays.append(array)

    if column.bound is None:
        add("", column.value, None)
        return
    omit = contract is Contract.OMIT and met is not None and not met.all()
    add("", omitted(column.value, met) if omit and met is not None else column.value, ESTIMATE)
    if column.low is not None and column.high is not None:
        add("_low", column.low, COMPANION)
        add("_high", column.high, COMPANION)
    add("_bound", taken(_WORDS, column.bound.astype(np.int64)), COMPANION)
    flags = pa.nulls(len(column.value), pa.bool_()) if met is None else pa.array(met)
    add("_met", flags, COMPANION)


def _taken(arrays: list[pa.Array[Any]], rows: NDArray[np.int64], count: int) -> list[pa.Array[Any]]:
    if len(rows) == count and bool((rows == np.arange(count)).all()):
        return arrays
    return [taken(array, rows) for array in arrays]


def _notes(
    query: BoundQuery,
    evidence: Evidence,
    columns: list[OutputColumn],
    decided: Decided,
    share: float,
) -> list[str]:
    notes = []
    if share < 1.0:
        percent = 100 * at_share(query, share).confidence
        seen = evidence.groups - (evidence.others is not None)
        notes.append(
            f"chosen by estimates out of {seen:,} groups: intervals are asked at "
            f"{percent:.7g} %, so that those shown hold with {100 * query.confidence:g} %"
        )
    if decided.doubtful:
        notes.append(f"{decided.doubtful:,} groups that HAVING left out may belong in the answer")
    if evidence.missing is not None and decided.certain is not None:
        notes.append("HAVING, ORDER BY and LIMIT know only the groups that were seen")
    if evidence.others is not None:
        notes.append("groups that found no room are summed up in the row of others")
    weak = [c.name for c in columns if c.confidence < query.confidence - SLACK]
    if weak:
        notes.append(
            f"intervals of {', '.join(weak)} hold with less than {100 * query.confidence:g} %"
        )
    reasons = {estimates.reason: None for estimates in evidence.estimates.values()}
    return notes + [reason for reason in reasons if reason]
