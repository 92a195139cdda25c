"""Parts of the intervals of an answer: by how much each step of its evidence moves their ends.

An interval is made in steps: the synopses bound what they read, then each further step moves the
ends outward for tuples that the synopses lack. The part of a step is the distance that it moves
each end away from the value. So the parts of an end add up to the distance of the shown end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from shedder.cql.expressions.expression import Aggregate, Expression
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.precision_table import INTERVAL, PartRow
from shedder.queries.evidence.answer_builder import chosen
from shedder.queries.evidence.confidence_budget import aggregates_of
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.evidence.output_column import OutputColumn
from shedder.queries.evidence.output_columns import Groups
from shedder.queries.evidence.shown_widths import ShownWidth, unit_of, widths_of
from synopses.model.estimate import Bound

ROWS_MAX = 50  # Rows of an answer whose values have parts in the table.

_SELECTION = "selection"
_SYNOPSIS = "synopsis"
_AFTER_NONE = "the steps before have no bound, and this part cannot be told from theirs"
_NO_BOUND = "this step has no bound"
_UNBOUNDED = "the end was unbounded before, and this part cannot be told apart"
_NULL = "the value is NULL"
_TOGETHER = "one bound covers both, so neither is told apart"

Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """Evidence behind one step.

    parts: names of what the step allows for: of each aggregate where they differ.
    part: the same, of all others.
    spends: the step spends a part of the error probability; False: what it adds is certain.
    """

    part: str
    evidence: Evidence
    parts: Mapping[Aggregate, Sequence[str]] = field(default_factory=dict)
    spends: bool = False


@dataclass(frozen=True, slots=True)
class WidthPrices:
    """What more of a resource takes away of an aggregate's width, as shares of it.

    per_kib, per_ns, per_second: None: `reason` says why.
    """

    per_kib: float | None
    per_ns: float | None
    per_second: float | None
    reason: str

    @classmethod
    def none(cls, reason: str) -> Self:
        """Nothing has a price."""
        return cls(None, None, None, reason)


_NO_PRICE = WidthPrices.none("nothing that a query is given changes what this step allows for")
_FOLLOWS = WidthPrices.none("it falls as the parts before it do")
_COMPOSITE = WidthPrices.none("the output is made of several aggregates, each with its own prices")


@dataclass(frozen=True, slots=True)
class ValueStep:
    """One step of the interval of one value.

    part: name of what the step allows for. width: behind the step.
    confidence: that the part holds with; 1: for certain. prices: of the part.
    reason: why there is no width, if there is none.
    is_joint: the part has several names.
    """

    part: str
    width: ShownWidth
    confidence: float
    prices: WidthPrices
    reason: str = ""
    is_joint: bool = False


@dataclass(frozen=True, slots=True)
class _StepColumn:
    """An output behind one step: widths by row and item; the rest as of `ValueStep`."""

    part: str
    is_joint: bool
    confidence: float
    widths: Mapping[Key, ShownWidth]
    reason: str
    prices: WidthPrices

    def at(self, key: Key) -> ValueStep:
        """The step of one value; an item that a list does not have yet has no width."""
        nothing = ShownWidth(None, None, None, None, None, Bound.NONE)
        width = self.widths.get(key, nothing)
        return ValueStep(self.part, width, self.confidence, self.prices, self.reason, self.is_joint)


def interval_parts(
    query: BoundQuery,
    steps: Sequence[EvidenceStep],
    prices: Mapping[Aggregate, WidthPrices],
) -> tuple[list[PartRow], int]:
    """Return the parts of each shown value, and the number of rows that have none here.

    Args:
      query: the query that is answered.
      steps: of the same groups, in the order in which intervals are made; the last one is what the
        answer is made of. Steps that change nothing have no part.
      prices: of the first step.

    Returns:
      For each row and output the parts, then a row named INTERVAL with the shown interval.
    """
    decided, shown = chosen(query, steps[-1].evidence)
    rows = decided.rows[:ROWS_MAX]
    kept = [steps[0]] + [
        step
        for before, step in pairwise(steps)
        if step.evidence.estimates is not before.evidence.estimates
    ]
    if shown.evidence is not steps[-1].evidence:
        kept.append(EvidenceStep(_SELECTION, shown.evidence, spends=True))
    taken = [replace(step, evidence=step.evidence.take(rows)) for step in kept]
    groups = [Groups(query, step.evidence) for step in taken]
    names = _group_names(query, taken[-1].evidence)
    found: list[PartRow] = []
    by_row: dict[int, list[PartRow]] = {at: [] for at in range(len(rows))}
    for output in query.outputs:
        columns = [each.output(output) for each in groups]
        if columns[-1].bound is None:
            continue
        node = output.expression
        price = prices.get(node, _COMPOSITE) if isinstance(node, Aggregate) else _COMPOSITE
        made = [
            _step_column(step, column, node, _prices(step.part, price, is_first=at == 0))
            for at, (step, column) in enumerate(zip(taken, columns, strict=True))
        ]
        unit = unit_of(columns[-1])
        for key in made[-1].widths:
            row, item = key
            name = f"{output.name}[{item}]" if item else output.name
            first = PartRow(row + 1, names[row], name, "", unit=unit)
            by_row[row] += value_parts(first, [each.at(key) for each in made])
    for own in by_row.values():
        found += own
    return found, len(decided.rows) - len(rows)


def _group_names(query: BoundQuery, evidence: Evidence) -> list[str | None]:
    """Return the keys of each group as text."""
    if not query.groups:
        return [None] * evidence.groups
    texts = [[str(each) for each in key.cast(pa.string()).to_pylist()] for key in evidence.keys]
    named = list(map(text_of, query.groups))
    found: list[str | None] = [
        ", ".join(f"{name} = {text}" for name, text in zip(named, own, strict=True))
        for own in zip(*texts, strict=True)
    ]
    if evidence.others is not None:
        found[evidence.others] = "others"
    return found


def _prices(part: str, price: WidthPrices, *, is_first: bool) -> WidthPrices:
    if is_first:
        return price
    return _FOLLOWS if part == _SELECTION else _NO_PRICE


def _step_column(
    step: EvidenceStep, column: OutputColumn, node: Expression, prices: WidthPrices
) -> _StepColumn:
    aggregates = list(aggregates_of(node))
    words = dict.fromkeys(word for each in aggregates for word in step.parts.get(each, ()))
    if len(words) > 1:
        words.pop(_SYNOPSIS, None)  # It reads all of its tuples, and adds nothing to the others.
    reasons = [step.evidence.estimates[each].reason for each in aggregates]
    return _StepColumn(
        part=" and ".join(words) or step.part,
        is_joint=len(words) > 1,
        confidence=column.confidence if step.spends else 1.0,
        widths={(row, item): width for row, item, width in widths_of(column)},
        reason=next(filter(None, reasons), ""),
        prices=prices,
    )


def value_parts(first: PartRow, steps: Sequence[ValueStep]) -> Iterator[PartRow]:
    """Yield the parts of one value, then its interval, which is that of the last step.

    first: the value's row, group, output and unit.
    """
    last, widths = steps[-1].width, [step.width for step in steps]
    lower = _differences([each.lower for each in widths])
    upper = _differences([each.upper for each in widths])
    whole = None if last.lower is None or last.upper is None else last.lower + last.upper
    is_shared = whole is not None and 0 < whole < np.inf
    for at, (step, down, up) in enumerate(zip(steps, lower, upper, strict=True)):
        both = None if down is None or up is None else down + up
        row = replace(
            first,
            part=step.part,
            lower=down,
            upper=up,
            share=both / whole if is_shared and both is not None and whole else None,
            confidence=step.confidence,
            reason=_reason(step, widths[:at], down, up),
        )
        yield _priced(row, both, step.prices)
    yield replace(
        first,
        part=INTERVAL,
        lower=last.lower,
        upper=last.upper,
        share=1.0 if is_shared else None,
        confidence=min(step.confidence for step in steps),
        value=last.value,
        low=last.low,
        high=last.high,
        bound=last.bound.word,
        reason=None if last.lower is not None else _without(last, steps[-1].reason),
    )


def _differences(widths: Sequence[float | None]) -> list[float | None]:
    """Return what each step adds to a width; None where that is not known.

    The sum of those that are known is the last width if that is finite.
    """
    found: list[float | None] = []
    before, was_open = 0.0, False
    for width in widths:
        if width is None or (width == np.inf and was_open):
            found.append(None)
        elif width == np.inf:
            found.append(width)
        else:
            found.append(float(width - before))
            before = width
        was_open = was_open or width == np.inf
    if widths[-1] is not None and widths[-1] < np.inf:
        found = [None if each == np.inf else each for each in found]
    return found


def _reason(
    step: ValueStep, before: Sequence[ShownWidth], lower: float | None, upper: float | None
) -> str | None:
    """Say why a part has no width, or why two parts have one."""
    if lower is not None and upper is not None:
        return _TOGETHER if step.is_joint and lower + upper > 0.0 else None
    if any(each.lower is None for each in before):
        return _AFTER_NONE
    if step.width.lower is None:
        return _without(step.width, step.reason)
    return _UNBOUNDED


def _without(width: ShownWidth, reason: str) -> str:
    if width.bound is Bound.INTERVAL:
        return _NULL
    return reason or _NO_BOUND


def _priced(row: PartRow, width: float | None, price: WidthPrices) -> PartRow:
    """The part with what resources would take away of it, or the reason why not."""
    if width is None or width == 0.0:
        return row
    half = width / 2.0
    per = [
        None if share is None or not np.isfinite(width) else min(share, 1.0) * half
        for share in (price.per_kib, price.per_ns, price.per_second)
    ]
    return replace(
        row,
        saved_per_kib=per[0],
        saved_per_ns=per[1],
        saved_per_second=per[2],
        reason="; ".join(filter(None, [row.reason, price.reason])) or None,
    )
