"""Estimates of a query's aggregates from the merged panes of a window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import Aggregate, AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.estimates.thinned_window import (
    adds_sketch_error,
    levels_of,
    missing_groups,
    note_of,
    skipped_rows,
    smallest_share,
    was_thinned,
    window_parts,
)
from shedder.engine.window_state.merged_window import Merged, merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.evidence.confidence_budget import at_share, split_confidence
from shedder.queries.evidence.evidence import Evidence
from shedder.streams.group_keys import OTHERS
from shedder.streams.windows import Span
from synopses.model.estimate import Bound, Estimates

T = TypeVar("T")
_NO_WINDOW = "no window has closed yet; the watermark has to pass the end of the first one"
_CAPPED = "the byte cap of an aggregate was reached"
_PARTIAL = "some of the group's tuples may be among the others"


def window_evidence(
    query_state: QueryState,
    span: Span,
    *,
    confidences: Mapping[Aggregate, float],
    watermark_us: int | None,
    position: int,
    query: BoundQuery | None = None,
    counts_others: bool = True,
) -> Evidence:
    """Merge the panes of a window and ask them.

    Args:
      state: the query.
      span: a window of its grid; open at both ends before any window has closed.
      confidences: what each aggregate's interval is asked to hold with.
      watermark_us, position: the stream's, for the record.
      query: the standing one with another confidence; the standing one when None.
      counts_others: intervals allow for tuples of a group that are among those of other groups.
    """
    merged = merged_window(query_state, span)
    query = query_state.query if query is None else query

    def evidence_at(
        at: BoundQuery, confidences: Mapping[Aggregate, float], of: Collection[Aggregate]
    ) -> Evidence:
        evidence = _evidence_at(query_state, span, merged, at, confidences, of)
        if counts_others and not (query_state.grid.slides and span.end_us is None):
            evidence = _with_others(query_state, merged, evidence)
        return replace(evidence, watermark_us=watermark_us, position=position)

    def again(
        share: float, of: Collection[Aggregate], rows: NDArray[np.int64] | None = None
    ) -> Evidence:
        smaller = {each: 1.0 - (1.0 - held) * share for each, held in confidences.items()}
        found = evidence_at(at_share(query, share), smaller, of)
        return found if rows is None else found.take(rows)

    found = evidence_at(query, confidences, query.aggregates)
    complete = _is_complete(span, watermark_us)
    return replace(found, complete=complete, again=again)


def _evidence_at(
    query_state: QueryState,
    span: Span,
    merged: Merged,
    query: BoundQuery,
    confidences: Mapping[Aggregate, float],
    aggregates: Collection[Aggregate],
) -> Evidence:
    """What the merged panes of a window say at these confidences."""
    parts = window_parts(query_state, merged, aggregates)
    share = smallest_share(merged)
    if share < 1.0:
        certain = {a for a, part in parts.items() if part.is_certain(a)}
        confidences = split_confidence(query, certain=certain)
    confidence_of = {a: confidences.get(a, query.confidence) for a in parts}
    estimates = {a: part.estimate(a, confidence_of[a]) for a, part in parts.items()}
    evidence = Evidence(
        keys=()
        if merged.ids is None or query_state.keys is None
        else query_state.keys.keys(merged.ids),
        estimates=estimates,
        start_us=span.start_us,
        end_us=span.end_us,
        late=merged.late,
        sources=tuple(dict.fromkeys(e.source for e in estimates.values())),
        rank_errors=_known((a, part.rank_error(a, confidence_of[a])) for a, part in parts.items()),
        share_errors=_known((a, part.share_error) for a, part in parts.items()),
    )
    if merged.late:
        evidence = replace(
            evidence,
            late_span=query_state.late_span(span),
            times=_known((a, part.times(a)) for a, part in parts.items()),
            crosses=_known((a, part.crosses) for a, part in parts.items()),
            counts=_known((a, part.known_counts) for a, part in parts.items()),
            frequents={
                a: partial(part.frequent, a, confidence_of[a])
                for a, part in parts.items()
                if a.function is AggregateFunction.FREQUENT
            },
            quantiles={
                a: partial(part.quantile, a, confidence_of[a])
                for a, part in parts.items()
                if a.function is AggregateFunction.QUANTILE
            },
        )
    if share < 1.0:
        evidence = replace(
            evidence,
            thinning=share,
            levels=partial(levels_of, query_state, merged),
            missing=missing_groups(merged, query.confidence) if query.groups else None,
            notes=(*evidence.notes, note_of(merged)),
        )
    if query_state.panes.widths.note is not None:
        evidence = replace(evidence, notes=(*evidence.notes, query_state.panes.widths.note))
    if query_state.grid.slides and span.end_us is None:
        return _before_the_first(evidence)
    return evidence


def error_parts(query_state: QueryState, span: Span) -> dict[Aggregate, tuple[str, ...]]:
    """Return what the errors of each aggregate of a window come from, before any is widened."""
    merged, plan = merged_window(query_state, span), query_state.plan
    found: dict[Aggregate, tuple[str, ...]] = {}
    for aggregate, *places in zip(
        query_state.query.aggregates, plan.answers, plan.partners, strict=True
    ):
        parts = [at for at in places if at is not None]
        names = ["thinning"] if any(was_thinned(merged, at) for at in parts) else []
        names += ["sketch"] if adds_sketch_error(query_state, merged, parts[0]) else []
        found[aggregate] = tuple(names) or ("synopsis",)
    return found


def _known(found: Iterable[tuple[Aggregate, T | None]]) -> dict[Aggregate, T]:
    """What is known of each aggregate."""
    return {aggregate: each for aggregate, each in found if each is not None}


def _before_the_first(evidence: Evidence) -> Evidence:
    """No window has closed: that nothing is known is not the same as that there is nothing."""
    unknown = {
        aggregate: replace(
            column, bound=np.full(len(column), Bound.NONE, np.uint8), reason=_NO_WINDOW
        )
        for aggregate, column in evidence.estimates.items()
    }
    return replace(evidence, estimates=unknown, notes=(*evidence.notes, _NO_WINDOW))


def _is_complete(span: Span, watermark_us: int | None) -> bool:
    return span.end_us is not None and watermark_us is not None and watermark_us >= span.end_us


def _with_others(query_state: QueryState, merged: Merged, evidence: Evidence) -> Evidence:
    """Say which row stands for the groups that found no room, and whom they may belong to."""
    ids = merged.ids
    if ids is None or not len(ids) or ids[0] != OTHERS:
        return evidence
    # A tuple that was skipped may have been one of theirs.
    weight = float(merged.pane.counts[0]) + skipped_rows(merged)
    estimates = dict(evidence.estimates)
    partial_from = None if query_state.keys is None else query_state.keys.partial_from
    if partial_from is not None and (ids >= partial_from).any():
        partial = ids >= partial_from
        estimates = {a: _widened(a, e, partial, weight) for a, e in estimates.items()}
    missing = MissingGroups(weight + 1.0, 1.0, _CAPPED)  # One group may have all of them.
    return replace(evidence, estimates=estimates, others=0, missing=missing)


def _widened(
    aggregate: Aggregate, column: Estimates, partial: np.ndarray, others: float
) -> Estimates:
    """Groups that found room late may have tuples among the others: say so."""
    bound = column.bound.copy()
    high = column.high.copy()
    if aggregate.function.name in ("COUNT", "COUNT_DISTINCT", "DISTINCT_BOTH"):
        bound[partial] = np.maximum(bound[partial], Bound.INTERVAL)
        high[partial] = high[partial] + high.dtype.type(others)
    else:
        bound[partial] = Bound.NONE
    return replace(column, high=high, bound=bound, reason=_PARTIAL)
