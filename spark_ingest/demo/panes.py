"""The panes of two standing queries, synopsis by synopsis: equal bytes, or why they may differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.panes.pane import Pane
from shedder.engine.synopsis_plans.synopsis_plan import RANKED, SynopsisKind, SynopsisSpec
from shedder.engine.window_state.query_state import QueryState
from shedder.queries.certification.claims import aggregate_name
from shedder.streams.group_keys import GroupKeys
from synopses.model.estimate import Estimates

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)  # Their sums are exact.
_FULL = "a full table of groups takes those that come first"
_WIDE = "buckets are as wide as there was room when they came"
_ROUNDING = 1e-9  # Relative: what the order of additions leaves of a variance of millions.


@dataclass(frozen=True, slots=True)
class Alike:
    """One synopsis of a query in all panes of both.

    query: its name. synopsis: its kind. answers: what is read from it. panes: that either holds;
      closed: those of them that the watermark has passed.
    equal: panes in which its bytes are the same. unlike: panes in which it differs, and should not.
    why: what makes its bytes depend on the order of tuples; "": nothing does.
    """

    query: str
    synopsis: str
    answers: str
    panes: int
    closed: int
    equal: int
    unlike: int
    why: str


def alike(name: str, left: QueryState, right: QueryState) -> Iterator[Alike]:
    """Compare all panes of two queries with the same text.

    Args:
      name: to call them by. left, right: at rest; nothing of them is changed.

    Yields:
      One for each synopsis of their plan.
    """
    parts = left.plan.parts
    is_full = any(map(_is_full, (left, right)))
    numbers = sorted(left.panes.keys() | right.panes.keys())
    closed = sum(number not in set(left.panes.open_numbers()) for number in numbers)
    equal, unlike = np.zeros(len(parts), np.int64), np.zeros(len(parts), np.int64)
    for number in numbers:
        pair = [_in_order(_held(side, number), side.keys) for side in (left, right)]
        for at, part in enumerate(parts):
            same, fault = _verdict(part, at, *pair, is_full=is_full)
            equal[at] += same
            unlike[at] += fault
    for at, part in enumerate(parts):
        named = zip(left.query.aggregates, left.plan.answers, left.plan.partners, strict=True)
        answers = ", ".join(aggregate_name(each) for each, *places in named if at in places)
        yield Alike(
            name,
            part.kind.value,
            answers or "rows",
            len(numbers),
            closed,
            int(equal[at]),
            int(unlike[at]),
            _FULL if is_full else _why(part) or _WIDE * _is_narrower(part, at, left, right),
        )


def beside(found: Iterable[Alike]) -> Iterator[Table | str]:
    """The comparison for people to read: a table, and below it why not all bytes are equal."""
    table = Table(box=None, header_style="dim")
    for name in ("query", "synopsis", "of"):
        table.add_column(name, no_wrap=True)
    for name in ("panes", "closed", "equal bytes"):
        table.add_column(name, justify="right")
    last, below = "", list[str]()
    for each in found:
        counts = f"{each.panes:,}", f"{each.closed:,}", f"{each.equal:,}"
        name = "" if each.query == last else each.query
        style = "bold red" if each.unlike else ""
        table.add_row(name, each.synopsis, each.answers, *counts, style=style)
        last, what = each.query, f"{each.query}, {each.synopsis}"
        if each.unlike:
            below.append(f"{what}: UNLIKE in {each.unlike:,} panes")
        elif each.equal < each.panes:
            below.append(f"{what}: {each.why}")
    yield table
    yield from below


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A pane with its groups in the order of their hashes, which is the same on both sides."""

    pane: Pane
    hashes: bytes


def _held(side: QueryState, number: int) -> Pane:
    """A pane; an empty one where there is none, which says the same: summaries have one wherever
    the stream had tuples, and tuples that match nothing make none."""
    held = side.panes.get(number)
    return Pane(side.sizes.opened_plan, 1 if side.keys is None else 0) if held is None else held


def _in_order(held: Pane, keys: GroupKeys | None) -> _Ordered:
    if keys is None:
        return _Ordered(held, b"")
    ids = held.groups_here
    hashes = keys.hashes(ids)
    order = np.argsort(hashes)
    return _Ordered(held.select(ids[order]), hashes[order].tobytes())


def _is_full(side: QueryState) -> bool:
    """Return whether some groups found no room; which ones, the order of tuples decides."""
    return side.keys is not None and (side.keys.frozen or side.keys.partial_from is not None)


def _verdict(
    part: SynopsisSpec, at: int, left: _Ordered, right: _Ordered, *, is_full: bool
) -> tuple[bool, bool]:
    """Return whether one synopsis of a pane has the same bytes on both sides, and is wrong."""
    ours, theirs = left.pane.parts[at], right.pane.parts[at]
    if left.hashes != right.hashes:
        return False, not is_full or _tuples(part, ours) != _tuples(part, theirs)
    segments = [_segments(each.pane, at) for each in (left, right)]
    if ours.to_bytes() == theirs.to_bytes() and segments[0] == segments[1]:
        return True, False
    if is_full:
        return False, _tuples(part, ours) != _tuples(part, theirs)
    return False, segments[0] != segments[1] or not _may_differ(part, ours, theirs)


def _tuples(part: SynopsisSpec, synopsis: Any) -> int:
    """Return how many it has read, of all groups together; 0 where it does not know."""
    match part.kind:
        case SynopsisKind.COUNT | SynopsisKind.MOMENTS:
            return int(synopsis.counts().sum())
        case SynopsisKind.FREQUENT:
            return int(synopsis.totals.sum())
        case _:
            return 0


def _is_narrower(part: SynopsisSpec, at: int, left: QueryState, right: QueryState) -> bool:
    """Return whether the buckets of one side are narrower in any pane."""
    if part.kind is not SynopsisKind.BUCKETS:
        return False
    return any(
        left.panes[number].parts[at].mantissa_bits != right.panes[number].parts[at].mantissa_bits
        for number in left.panes.keys() & right.panes.keys()
    )


def _segments(pane: Pane, at: int) -> dict[int, bytes]:
    """By level, the bytes of what a part read thinned."""
    found = pane.segments.items()
    return {level: segment.synopsis.to_bytes() for (part, level), segment in found if part == at}


def _why(part: SynopsisSpec) -> str:
    match part.kind:
        case SynopsisKind.MOMENTS if part.variance:
            return "variances are rounded in the order of tuples"
        case SynopsisKind.MOMENTS if part.argument is not None and part.argument.type in _WHOLE:
            return ""
        case SynopsisKind.MOMENTS | SynopsisKind.CROSS:
            return "sums of doubles are rounded in the order of tuples"
        case SynopsisKind.FREQUENT:
            return "a full table forgets in the order of tuples"
        case SynopsisKind.FIRST_LAST | SynopsisKind.TEXT_FIRST_LAST:
            return "they hold tuples' numbers, which each way gives out"
        case kind if kind in RANKED:
            return "which values stay is drawn as they come"
        case _:
            return ""


def _may_differ(part: SynopsisSpec, ours: Any, theirs: Any) -> bool:
    """Return whether two synopses that differ in bytes can be of the same tuples."""
    match part.kind:
        case SynopsisKind.BUCKETS:
            bits = min(ours.mantissa_bits, theirs.mantissa_bits)
            copies = [type(each).from_bytes(each.to_bytes()) for each in (ours, theirs)]
            wide, other = (each.resize(bits).to_bytes() for each in copies)
            return ours.mantissa_bits != theirs.mantissa_bits and bool(wide == other)
        case _ if not _why(part):
            return False
        case SynopsisKind.MOMENTS:
            same = _equal(ours.counts(), theirs.counts())
            ends = _close(ours.minimum(), theirs.minimum(), 0.0)
            ends &= _close(ours.maximum(), theirs.maximum(), 0.0)
            if part.variance:
                ends &= _close(ours.variance(), theirs.variance(), _ROUNDING)
            return same and ends and _close(ours.mean(), theirs.mean(), _ROUNDING)
        case SynopsisKind.CROSS:
            return _close(ours.covariance(sample=False), theirs.covariance(sample=False), _ROUNDING)
        case SynopsisKind.FREQUENT:
            full = (ours.error > 0) | (theirs.error > 0)
            return bool(full.any()) and _equal(ours.totals, theirs.totals)
        case SynopsisKind.FIRST_LAST | SynopsisKind.TEXT_FIRST_LAST:
            times = _equal(ours.first_times(), theirs.first_times())
            return times and _equal(ours.last_times(), theirs.last_times())
        case kind if kind in RANKED:
            return _equal(ours.counts(), theirs.counts())
        case _:
            return False


def _equal(ours: Any, theirs: Any) -> bool:
    return bool(np.array_equal(ours, theirs))


def _close(ours: Estimates, theirs: Estimates, relative: float) -> bool:
    left, right = np.asarray(ours.value, np.float64), np.asarray(theirs.value, np.float64)
    return bool(np.allclose(left, right, rtol=relative, atol=0.0, equal_nan=True))
