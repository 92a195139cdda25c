"""Widths of whole answers beside the ideal, through the public API: a table for docs/coverage.md.

Each output is asked of each source on the columns of tests/synopses/width_table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from shedder.settings import Settings
from tests.engine.shown_rows import Seeded
from tests.synopses.kept_rows import KeptRows

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int], Floats]

TRIALS: Final = 5
_NORMAL: Final = 1.96
_STEP_US: Final = 10_000  # Between two rows.
_BATCH_ROWS: Final = 10_000
_BEFORE: Final = 120_000  # Rows of a thinned stream before the window; they set the take-all ends.
_CREATE: Final = (
    "CREATE STREAM s (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE, y DOUBLE, u DOUBLE)"
    " TIMESTAMP BY ts "
)
OUTPUTS: Final[Mapping[str, str]] = {
    "COUNT": "COUNT(*)",
    "SUM": "SUM(x)",
    "AVG": "AVG(x)",
    "VAR": "VAR(x)",
    "MEDIAN": "MEDIAN(x)",
    "CORR": "CORR(x, y)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A way to an answer that does not read all tuples.

    sample_rows: of the live sample. groups: 1: none.
    shares: that are read of equal parts of the rows, one after the other.
    archive: of the stream. levels: of thinning, for each of these parts; empty: asked once.
    clauses: what follows the question.
    """

    rows: int
    sample_rows: int
    groups: int
    shares: tuple[float, ...]
    archive: str = "ARCHIVE plain"
    levels: tuple[str, ...] = ()
    clauses: str = ""


SOURCES: Final[Mapping[str, Source]] = {
    "whole, live sample": Source(20_000, 1_000, 1, (0.05,), clauses=" WITHIN 1e307 ABSOLUTE"),
    "by group, archive": Source(
        40_000, 4_000, 50, (0.125,), "ARCHIVE hybrid(blocks=16, block_rows=100)",
        clauses=" REDUCE BY uniform(0.875)",
    ),
    "by group, thinned 1/8": Source(40_000, 4_000, 50, (1 / 8,), levels=("1/8",)),
    "by group, levels mixed": Source(40_000, 4_000, 50, (1 / 8, 1 / 2), levels=("1/8", "1/2")),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Rows, and the share of each that is read."""

    ids: Ids
    x: Floats
    y: Floats
    u: Floats
    share: Floats

    @classmethod
    def of(cls, draw: Draw, source: Source, seed: int, before: int) -> World:
        """Draw them; y is half of x's variance, and noise."""
        rng = np.random.default_rng(seed)
        size = before + source.rows
        x = draw(rng, size)
        y = x / x.std() + rng.permutation(x) / x.std()
        share = np.repeat(source.shares, source.rows // len(source.shares))
        share = np.concatenate([np.full(before, source.shares[0]), share])
        ids = rng.integers(0, source.groups, size)
        return cls(ids, x, y, rng.random(size), share)

    def table(self) -> pa.Table:
        """The rows as a stream has them."""
        times = pa.array(np.arange(len(self.x)) * _STEP_US, pa.timestamp("us"))
        columns = {"ts": times, "g": self.ids, "x": self.x, "y": self.y, "u": self.u}
        return pa.table(columns)

    def last(self, rows: int) -> World:
        """The last rows."""
        return World(*(each[-rows:] for each in (self.ids, self.x, self.y, self.u, self.share)))

    def ideals(self, output: str, source: Source) -> dict[int | None, float]:
        """Half widths of ideal intervals, by group; 0 or NaN: there is none."""
        if source.groups == 1:
            return {None: self._ideal(output, self.u < _PASSES if output == "COUNT" else None)}
        return {g: self._ideal(output, self.ids == g) for g in range(source.groups)}

    def _ideal(self, output: str, chosen: NDArray[np.bool_] | None) -> float:
        """1.96 standard errors of the linearised estimate from simple random samples of strata."""
        here = np.ones(len(self.x), np.bool_) if chosen is None else chosen
        unread = 1 / self.share - 1
        if output in ("COUNT", "SUM"):
            each = here * (self.x if output == "SUM" else 1.0)
            squares = sum(
                unread[part].sum() * each[part].var()
                for part in (self.share == share for share in np.unique(self.share))
            )
            return _NORMAL * float(np.sqrt(squares))
        x, y, unread = self.x[here], self.y[here], unread[here]
        if output == "MEDIAN":
            away = _NORMAL * np.sqrt(unread.sum() / 4) / len(x)
            low, high = np.quantile(x, [0.5 - away, 0.5 + away], method="inverted_cdf")
            return float(high - low) / 2
        if output == "CORR":
            a, b = ((each - each.mean()) / each.std() for each in (x, y))
            influence = a * b - (a * b).mean() / 2 * (a**2 + b**2)
        else:
            influence = x - x.mean()
            if output == "VAR":
                influence = influence**2 - (influence**2).mean()
        return _NORMAL * float(np.sqrt((unread * influence**2).sum())) / len(x)


# By source: the same medians, and what was to be reached. None: there was no interval.
BEFORE: Final[Mapping[str, tuple[float | None, ...]]] = {
    "COUNT": (1.06, 1.09, 1.02, 1.4),
    "SUM": (2.0, 5.7, 5.8, 9.0),
    "AVG": (2.0, 9.7, 10.0, 24.0),
    "VAR": (3.1, 50.0, 53.0, 22.0),
    "MEDIAN": (1.04, 1.02, 1.1, 4.6),
    "CORR": (16.6, 4.8, 4.8, None),
}
WANTED: Final[Mapping[str, tuple[float | None, ...]]] = {
    "COUNT": (1.06, 1.06, 1.02, 1.15),
    "SUM": (1.3, 1.6, 1.6, 2.0),
    "AVG": (1.3, 1.6, 1.6, 2.0),
    "VAR": (1.8, 3.0, 3.0, 4.0),
    "MEDIAN": (1.04, 1.02, 1.1, 1.5),
    "CORR": (None, None, None, None),
}
_PREFACE: Final = """\
Whole answers through the public API, by `tests/engine/one_time_queries/output_widths.py`: the
median over the columns above of the median over {trials} streams. A column without an ideal width
is left out.

- *Whole, live sample*: 1,000 of 20,000 tuples. `COUNT` is behind a filter that passes a fifth.
- *By group, archive*: an eighth of 40,000 tuples in 50 groups, beside a live sample of 4,000 tuples
  with 31 extreme rows at each end of a column.
- *Thinned*, *mixed*: 40,000 tuples in 50 groups, as above; 120,000 tuples came before.
- *before*: an independent study of an earlier version, with columns of its own.
- `CORR`: of x and a column with half of its variance. An interval is at most 2 wide."""
_PASSES: Final = 0.2  # Share of the rows that the filter of COUNT lets through.


def widths(db: Engine, machine: Seeded, draw: Draw, source: Source, seed: int) -> dict[str, float]:
    """Medians of half widths over the ideal ones, by output."""
    before = _BEFORE if source.levels else 0
    world = World.of(draw, source, seed, before)
    shown = world.last(source.rows)
    found = {}
    for output, answer in _answers(db, machine, world, source, seed).items():
        ideals, ratios = shown.ideals(output, source), []
        for row in answer.rows():
            ideal, bound = ideals[row.get("g")], row["v_bound"]
            half = np.inf if bound == "none" else (row["v_high"] - row["v_low"]) / 2
            if ideal > 0:
                ratios.append(half / ideal)
        if ratios:
            found[output] = median(ratios)
    return found


def _answers(
    db: Engine, machine: Seeded, world: World, source: Source, seed: int
) -> dict[str, Answer]:
    machine.begin(seed)
    db.execute(_CREATE + source.archive)
    seconds = source.rows * _STEP_US // 1_000_000
    window = f" [RANGE {seconds} SECONDS SLIDE {seconds} SECONDS]" if source.levels else ""
    texts = {}
    for output, text in OUTPUTS.items():
        if source.groups > 1:
            texts[output] = f"SELECT g, {text} AS v FROM s{window} GROUP BY g"
        else:
            where = f" WHERE u < {_PASSES}" if output == "COUNT" else ""
            texts[output] = f"SELECT {text} AS v FROM s{window}{where}"
    queries = {}
    if source.levels:
        queries = {output: db.register(f"q_{output}", text) for output, text in texts.items()}
    try:
        for batch in _batches(db, world, source, queries):
            db.push("s", batch)
        if queries:
            db.heartbeat("s", len(world.x) * _STEP_US)
            return {output: query.answer() for output, query in queries.items()}
        db.seal("s")
        return {output: db.execute(text + source.clauses) for output, text in texts.items()}
    finally:
        for query in queries.values():
            query.drop()
        db.execute("DROP STREAM s")


def _batches(
    db: Engine, world: World, source: Source, queries: Mapping[str, object]
) -> Iterator[pa.Table]:
    table, before = world.table(), len(world.x) - source.rows
    starts = [before + source.rows * at // len(source.levels) for at in range(len(source.levels))]
    levels = dict(zip([0, *starts[1:]], source.levels, strict=True)) if source.levels else {}
    for first in range(0, table.num_rows, _BATCH_ROWS):
        if first in levels:
            for output in queries:
                db.execute(f"ALTER QUERY q_{output} SET THINNING {levels[first]}")
        yield table.slice(first, _BATCH_ROWS)


def _medians(db: Engine, machine: Seeded, draw: Draw, source: Source, trials: int) -> list[float]:
    """Medians of `widths` over trials, by output; NaN: there is no ideal width."""
    answers = [widths(db, machine, draw, source, at) for at in range(trials)]
    there = ([one[output] for one in answers if output in one] for output in OUTPUTS)
    return [median(each) if each else nan for each in there]


def measured(
    columns: Mapping[str, Draw],
    trials: int,
    names: Iterable[str] = tuple(SOURCES),
    kept: KeptRows | None = None,
) -> dict[tuple[str, str], float]:
    """The median over columns of their medians over trials, by source and output."""
    rows = kept or KeptRows()
    found: dict[tuple[str, str], float] = {}
    for name in names:
        source = SOURCES[name]
        each: dict[str, list[float]] = {output: [] for output in OUTPUTS}
        machine = Seeded()
        settings = Settings(sample_rows=source.sample_rows, audit="off", overload="off")
        with (
            TemporaryDirectory() as directory,
            Engine.open(Path(directory), settings, machine=machine) as db,
        ):
            for column, draw in columns.items():
                measure = partial(_medians, db, machine, draw, source, trials)
                row = rows.row(f"whole answers, {name}", column, measure)
                for some, width in zip(each.values(), row, strict=True):
                    some.extend([] if isnan(width) else [width])
        found.update({(name, output): median(some) for output, some in each.items()})
    return found


def section(columns: Mapping[str, Draw], kept: KeptRows, trials: int = TRIALS) -> str:
    """The table with its preface."""
    found = measured(columns, trials, kept=kept)
    heads = [f"{name}: before | wanted | now" for name in SOURCES]
    lines = ["", *_PREFACE.format(trials=trials).split("\n"), ""]
    lines += ["| output | " + " | ".join(heads) + " |", "|---" * (1 + 3 * len(heads)) + "|"]
    for output in OUTPUTS:
        cells = []
        for at, name in enumerate(SOURCES):
            before, wanted = BEFORE[output][at], WANTED[output][at]
            cells += [_cell(before), _cell(wanted), _cell(found[name, output])]
        lines.append(f"| {output} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(width: float | None) -> str:
    return "" if width is None else f"{width:.2f}"
