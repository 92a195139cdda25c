"""Brute force for relations over windows: plain Python lists, nothing of the dataflow or of CQL.

A tuple is (ts, position, row). Semantics: live as of e iff it is in the window as of the last
evaluated instant at or before e, and has an event time before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

Row = tuple[Any, ...]
Tuple = tuple[int, int, Row]
Relation = list[Row]
At = Callable[[int], Relation]


def before(log: Iterable[Tuple], e: int) -> list[Tuple]:
    """Tuples with event time before e; the log is by (event time, position)."""
    return [each for each in log if each[0] < e]


def unbounded(log: Iterable[Tuple]) -> At:
    return lambda e: [row for _, _, row in before(log, e)]


def range_window(log: Iterable[Tuple], size: int, slide: int = 1) -> At:
    def at(e: int) -> Relation:
        end = e // slide * slide
        return [row for ts, _, row in before(log, end) if ts >= end - size]

    return at


def landmark(log: Iterable[Tuple], start: int, end: int | None = None) -> At:
    return lambda e: [
        row for ts, _, row in before(log, e) if ts >= start and (end is None or ts < end)
    ]


def rows_window(log: Iterable[Tuple], n: int, part: Callable[[Row], Any] = lambda _: None) -> At:
    def at(e: int) -> Relation:
        newest: dict[Any, list[Row]] = {}
        for _, _, row in before(log, e):
            newest.setdefault(part(row), []).append(row)
        return [row for rows in newest.values() for row in rows[-n:]]

    return at


def select(source: At, condition: Callable[[Row], bool | None]) -> At:
    return lambda e: [row for row in source(e) if condition(row)]


def project(source: At, outputs: Callable[[Row], Row]) -> At:
    return lambda e: [outputs(row) for row in source(e)]


def distinct(source: At) -> At:
    return lambda e: list(set(source(e)))


def by_counts(left: At, right: At, result: Callable[[int, int], int]) -> At:
    def at(e: int) -> Relation:
        ours, theirs = Counter(left(e)), Counter(right(e))
        return [row for row in ours | theirs for _ in range(result(ours[row], theirs[row]))]

    return at


def join(left: At, right: At, condition: Callable[[Row, Row], bool | None]) -> At:
    return lambda e: [a + b for a in left(e) for b in right(e) if condition(a, b)]


def insertions(relation: At, instants: Iterable[int]) -> list[Tuple]:
    """ISTREAM: rows that are in the relation at an instant and not at the one before."""
    return _differences(relation, instants, lambda now, then: now - then)


def deletions(relation: At, instants: Iterable[int]) -> list[Tuple]:
    """DSTREAM."""
    return _differences(relation, instants, lambda now, then: then - now)


def _differences(
    relation: At,
    instants: Iterable[int],
    difference: Callable[[Counter[Row], Counter[Row]], Counter[Row]],
) -> list[Tuple]:
    made: list[Tuple] = []
    then: Counter[Row] = Counter()
    for e in instants:
        now = Counter(relation(e))
        for row in difference(now, then).elements():
            made.append((e - 1, len(made), row))
        then = now
    return made
