"""The rows of a frame whose values lie far out, and the others, for who thins (tails.py)."""

from __future__ import annotations

import numpy as np

from shedder.cql.expression import Column, Expression
from shedder.streams.frame import Frame, Known, Thinned
from shedder.streams.monotone import monotone_of
from shedder.streams.tails import Middle, middle_of, outside


def far(frame: Frame, expression: Expression) -> Thinned | None:
    """The few rows in which an expression's column lies far out; None: none do.

    All expressions that rise or fall with one column share them.
    """
    tail = _tail(frame, expression)
    return None if tail is None else tail[1]


def near(frame: Frame, expression: Expression, level: int) -> Thinned:
    """The rows that are kept at a level and are not among `far`, of which there are some."""
    chain, beyond = monotone_of(expression), far(frame, expression)
    assert chain is not None
    assert beyond is not None
    known = frame.tails.near
    if (chain.column, level) not in known:
        rows, apart = frame.thinned(level).rows, np.ones(len(frame), np.bool_)
        apart[beyond.rows] = False
        kept = np.flatnonzero(apart) if rows is None else rows[apart[rows]]
        known[chain.column, level] = Thinned(frame.picked(kept), kept)
    return known[chain.column, level]


def known_near(frame: Frame, expression: Expression, first: int, last: int) -> Known:
    """What is known of the values, in these rows, that are not among `far`."""
    tail, chain = _tail(frame, expression), monotone_of(expression)
    assert tail is not None
    assert chain is not None
    middle, beyond = tail
    known = frame.known(chain.column, first, last)
    low, high = beyond.between(first, last)
    rows = known.rows - (high - low)
    if not rows:
        return Known(0, None, None)
    assert known.low is not None
    assert known.high is not None
    ends = chain.ends(max(known.low, middle.low), min(known.high, middle.high))
    assert ends is not None, "the whole range of the column has them"
    return Known(rows, *ends)


def _tail(frame: Frame, expression: Expression) -> tuple[Middle, Thinned] | None:
    chain = monotone_of(expression)
    if chain is None:
        return None
    is_column = isinstance(expression, Column)
    if not is_column and frame.known_by_column(expression, 0, len(frame)) is None:
        return None  # Some value on the way might overflow.
    known = frame.tails.far
    if chain.column not in known:
        known[chain.column] = _far_in(frame, chain.column)
    return known[chain.column]


def _far_in(frame: Frame, column: Column) -> tuple[Middle, Thinned] | None:
    present = frame.present(column)
    values = np.asarray(present.values)
    middle = middle_of(values)
    if middle is None:
        return None
    found = outside(values, middle.low, middle.high)
    rows = found if present.rows is None else present.rows[found]
    return (middle, Thinned(frame.picked(rows), rows)) if len(rows) else None
