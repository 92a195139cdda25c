"""Widths of thinned panes without and with take-all rows: a table for docs/coverage.md.

Measured through queries that read rows, not through strata that were put together by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shedder.engine.window_state.take_all_stratum import STRETCH_ROWS
from tests.engine.window_state.take_all_world import (
    WARM_ROWS,
    answered,
    batch,
    query_state,
    read,
    schema,
    thinned_to,
)
from tests.synopses.kept_rows import KeptRows

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

AGGREGATES: Final = ("SUM", "AVG", "VAR")
WORLDS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "thinned": ((40_000, 3),),
    "mixed": ((20_000, 3), (20_000, 1)),
}
"""Rows of a pane, and the level that they are read at; in 50 groups."""
_GROUPS: Final = 50
_ENDLESS: Final = 1 << 40  # Rows of a stretch that sets no ends.
_ROWS_BEFORE: Final = 2 * WARM_ROWS  # Of the stream, thinned too: they set the ends.
_PREFACE: Final = """\
Sums, averages and variances of thinned panes, without and with *take-all rows*
([answers.md](answers.md#thinned-queries)). *Thinned*: 40,000 tuples in 50 groups of which
one in 8 is read. *Mixed*: one half is read at 1/8, the other at 1/2. The stream had 131,072 tuples
before, which set the ends."""


def widths(draw: Draw, world: str, trials: int, *, take_all: bool) -> dict[str, float]:
    """Medians of half widths over the ideal ones, by aggregate."""
    found: dict[str, list[float]] = {name: [] for name in AGGREGATES}
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        stream = schema(trial + 1)
        state = query_state(stream, stretch_rows=STRETCH_ROWS if take_all else _ENDLESS)
        if take_all:
            before = query_state(stream, stretch_rows=STRETCH_ROWS)
            thinned_to(before, WORLDS[world][0][1])
            ids = rng.integers(0, _GROUPS, _ROWS_BEFORE)
            read(before, batch(ids, draw(rng, _ROWS_BEFORE)), 0)
            state.take_all.restore(before.take_all.to_json())
        size = sum(rows for rows, _ in WORLDS[world])
        ids, values = rng.integers(0, _GROUPS, size), draw(rng, size)
        unread, first = np.zeros(size), 0
        for rows, level in WORLDS[world]:
            thinned_to(state, level)
            some = batch(ids[first:][:rows], values[first:][:rows])
            read(state, some, _ROWS_BEFORE + first, range(10_000, rows, 10_000))
            unread[first:][:rows] = 2.0**level - 1
            first += rows
        answer = answered(state, ids, values, unread)
        for name, each in found.items():
            each.extend(answer.widths(name))
    return {name: median(each) for name, each in found.items()}


def _row(draw: Draw, trials: int) -> list[float]:
    """Widths without and with take-all rows, by world and aggregate."""
    row = []
    for world in WORLDS:
        pair = [widths(draw, world, trials, take_all=each) for each in (False, True)]
        row += [found[name] for name in AGGREGATES for found in pair]
    return row


def section(columns: Mapping[str, Draw], trials: int, kept: KeptRows) -> str:
    """The table with its preface."""
    heads = [f"{world}: {name} without | with" for world in WORLDS for name in AGGREGATES]
    lines = ["", *_PREFACE.split("\n"), "", "| column | " + " | ".join(heads) + " |"]
    lines.append("|---" * (1 + 2 * len(heads)) + "|")
    rows: dict[str, list[float]] = {}
    for column, draw in columns.items():
        rows[column] = kept.row("take-all rows", column, partial(_row, draw, trials))
    rows["median over columns"] = [median(each) for each in zip(*rows.values(), strict=True)]
    for column, each in rows.items():
        lines.append(f"| {column} | " + " | ".join(f"{width:,.2f}" for width in each) + " |")
    return "\n".join(lines) + "\n"
