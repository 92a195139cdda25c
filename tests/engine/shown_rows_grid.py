"""The full grid of shown rows: `python -m tests.engine.shown_rows_grid`.

It asks the questions of shown_rows.py and shown_targets.py, and writes docs/coverage_shown.md. What
fails the gate is listed, and the exit code is 1. `--values` and `--source` repeat a cell alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from tests.engine.shown_rows import (
    CHOICES,
    OUTPUTS,
    ROWS,
    SAMPLED,
    SIZES,
    SOURCES,
    VALUES,
    Found,
    Score,
    Service,
    World,
    answers_of,
    opened,
)
from tests.engine.shown_targets import QUESTIONS, targets
from tests.engine.shown_targets import SOURCES as TARGET_SOURCES
from tests.seeds import derived
from tests.truth import gate

REPORT = Path(__file__).parents[2] / "docs" / "coverage_shown.md"
CONFIDENCE = 0.95
ALARM = 0.01  # Probability that any cell of an honest page fails: Bonferroni over all gates.
TARGETS_OF = ("0/1, 45 %", "trend", "sorted")  # Worlds whose targets are met by luck.
_PREFACE = """\
Written by `make coverage` (`tests/engine/shown_rows_grid.py`). Each answer is asked through the
public API at 95 % of a stream that is made anew: {rows:,} tuples in batches, of which about
{sampled:,} are read. The tuples stay the same, the sample does not; DuckDB computes the truth. Only
what an answer shows is counted, as it shows it: the rows that `HAVING`, `ORDER BY` and `LIMIT`
leave, with their intervals.

A cell is values, source, choice and output. It fails when so few of its intervals hold that an
honest method, whose rows are independent, would do so with a probability of {alarm:g} divided by
the number of all gates. The same gate is applied to each source, choice and output over all values,
and over the values of each grouping. An exact value may not miss once. `certain` is right in an
answer if each row that is `certain` belongs where it is.

Groups are 15 and 150 equal ones and 40 by Zipf, in turn. `HAVING` asks for one standard deviation
of an estimate more than the typical group has, so chance decides which groups pass. An answer that
some value without a bound keeps from its target is exact, and has no interval to count."""
_TARGETS = """\
A target is chosen so that a half or a quarter of the samples meet it. An answer is shown as an
interval if it meets the target, and exactly otherwise. Of the values that are shown as intervals,
the share that holds is counted. The archive is read until the target is met."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One trial's place: what arrives, where the answer comes from, what is shown."""

    values: str
    grouping: str
    source: str
    choice: str


@dataclass(slots=True)
class Measured:
    """What was counted.

    scores: by cell and output. certain, missing: right ones and all of them, by cell. targets: by
    values, question, share that meets and source; and in how many streams an interval was shown.
    """

    streams: int = 0
    scores: dict[tuple[Cell, str], Score] = field(default_factory=lambda: defaultdict(Score))
    certain: dict[Cell, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    missing: dict[Cell, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    targets: dict[tuple[str, str, float, str], Score] = field(
        default_factory=lambda: defaultdict(Score)
    )

    def add(self, cell: Cell, found: Found) -> None:
        """Count one answer."""
        for output, score in found.scores.items():
            self.scores[cell, output].add(score)
        for counts, right in (
            (self.certain[cell], found.certain),
            (self.missing[cell], found.missing),
        ):
            if right is not None:
                counts[0] += right
                counts[1] += 1


@dataclass(frozen=True)
class Size:
    """How much is asked: streams for each world and source, and for each target and source."""

    trials: int = 12
    target_trials: int = 80
    seed: int = 20_261_126
    values: tuple[str, ...] = tuple(VALUES)
    sources: tuple[str, ...] = tuple(SOURCES)


def measure(directory: Path, size: Size) -> Measured:
    """Ask everything; a trial of each world, source and choice takes the next grouping."""
    found = Measured()
    with opened(directory) as service:
        _ask_rows(service, size, found)
        _ask_targets(service, size, found)
    return found


def _ask_rows(service: Service, size: Size, found: Measured) -> None:
    worlds = {
        (values, groups): World.of(values, groups) for values in size.values for groups in SIZES
    }
    steps = list(product(range(size.trials), size.values, size.sources))
    for turn, values, source in track(steps, "shown rows", console=Console(stderr=True)):
        grouping = list(SIZES)[turn % len(SIZES)]
        seed = derived(size.seed, turn, values, source)
        answers = answers_of(
            service, worlds[values, grouping], source, CHOICES, confidence=CONFIDENCE, seed=seed
        )
        found.streams += 1
        for choice, each in answers.items():
            found.add(Cell(values, grouping, source, choice), each)


def _ask_targets(service: Service, size: Size, found: Measured) -> None:
    places = [
        (values, question, name)
        for values, question, name in product(TARGETS_OF, QUESTIONS, TARGET_SOURCES)
        if values in size.values and name in size.sources
    ]
    for values, question, name in track(places, "targets", console=Console(stderr=True)):
        world = World.of(values, next(iter(SIZES)))
        for target in targets(service, world, question, derived(size.seed, values, question)):
            place = values, question, target.meets, name
            for turn in range(size.target_trials):
                seed = derived(size.seed, *place[:2], str(target.meets), name, turn)
                found.targets[place].add(target.score(service, TARGET_SOURCES[name], seed))
                found.streams += 1


# --- the gate -----------------------------------------------------------------------------------

Pools = Mapping[str, Sequence[int]]
"""Held and shown, by what they are of."""


def _pooled(found: Measured, key: Callable[[Cell, str], str]) -> dict[str, list[int]]:
    pools: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (cell, output), score in found.scores.items():
        pool = pools[key(cell, output)]
        pool[0] += score.held
        pool[1] += score.shown
    return pools


def gates(found: Measured) -> Pools:
    """Everything that is gated, by what it is of: how many held, and how many were tried."""
    pools = {
        **_pooled(found, lambda c, out: f"{c.values}; {c.source}; {c.choice}; {out}"),
        **_pooled(found, lambda c, out: f"all values; {c.source}; {c.choice}; {out}"),
        **_pooled(found, lambda c, out: f"{c.grouping}; {c.source}; {c.choice}; {out}"),
    }
    for name, counted in (("`certain`", found.certain), ("missing groups", found.missing)):
        for cell, (right, tried) in counted.items():
            for place in (
                f"{name}; {cell.values}; {cell.source}",
                f"{name}; {cell.source}; {cell.choice}",
            ):
                before = pools.get(place, [0, 0])
                pools[place] = [before[0] + right, before[1] + tried]
    for (values, question, meets, source), score in found.targets.items():
        place = f"met by {meets:g} of the samples; {values}; {question}; {source}"
        pools[place] = [score.held, score.shown]
    return {place: counts for place, counts in pools.items() if counts[1]}


def failures(found: Measured) -> list[str]:
    """What the gate objects to, one line each."""
    pools = gates(found)
    alarm = ALARM / max(1, len(pools))
    bad = [
        f"{place}: {held} of {tried}"
        for place, (held, tried) in pools.items()
        if held < gate(tried, CONFIDENCE, alarm)
    ]
    exact = [
        (f"{c.values}; {c.grouping}; {c.source}; {c.choice}; {out}", score)
        for (c, out), score in found.scores.items()
    ]
    exact += [("; ".join(map(str, place)), score) for place, score in found.targets.items()]
    bad += [
        f"{place}: {score.right} of {score.exact} exact values are"
        for place, score in exact
        if score.right < score.exact
    ]
    return bad


# --- the page -----------------------------------------------------------------------------------


def report(found: Measured, size: Size) -> str:
    """The results as a page of Markdown."""
    bad, pools = failures(found), gates(found)
    intervals = sum(score.shown for score in found.scores.values())
    exact = sum(score.exact for score in found.scores.values())
    lines = ["# Coverage of the rows that are shown", ""]
    lines += _PREFACE.format(rows=ROWS, sampled=SAMPLED, alarm=ALARM, streams=found.streams).split(
        "\n"
    )
    lines += [
        "",
        f"Streams for each of the values and sources: {size.trials}; for each target and source:",
        f"{size.target_trials}. Streams in all: {found.streams:,}. Intervals: {intervals:,}.",
        f"Exact values: {exact:,}. Seed: {size.seed}.",
        f"Gates: {len(pools):,}. Failures: {len(bad)}.",
        "",
        *(f"- {line}" for line in bad),
        "",
        "## By choice and source",
        "",
        "The share that held of the intervals that were shown, and their number.",
        "",
        *_table(found, "choice", CHOICES, list(SOURCES), lambda c, _: (c.choice, c.source)),
        "",
        "## By output and values",
        "",
        *_table(found, "values", VALUES, list(OUTPUTS), lambda c, out: (c.values, out)),
        "",
        "## By choice and grouping",
        "",
        *_table(found, "choice", CHOICES, list(SIZES), lambda c, _: (c.choice, c.grouping)),
        "",
        "## `certain`, and missing groups",
        "",
        "Of the answers with a row that is `certain`: the share in which each one is right. Of the",
        "answers with every group: the share whose bound on missing groups is right.",
        "",
        "| source | `certain` | missing groups |",
        "|---|---|---|",
    ]
    for source in SOURCES:
        cells = [_of(counted, source) for counted in (found.certain, found.missing)]
        lines.append(f"| {source} | " + " | ".join(cells) + " |")
    lines += ["", "## Targets that few samples meet", "", *_TARGETS.split("\n"), ""]
    lines += ["| question | values | met by | source | shown as intervals | of these, held |"]
    lines += ["|---|---|---|---|---|---|"]
    for (values, question, meets, source), score in found.targets.items():
        all_shown = f"{score.shown} of {score.shown + score.exact}"
        held = f"{score.held / score.shown:.3f}" if score.shown else ""
        lines.append(f"| {question} | {values} | {meets:g} | {source} | {all_shown} | {held} |")
    return "\n".join(lines) + "\n"


def _table(
    found: Measured,
    title: str,
    rows: Mapping[str, object],
    columns: Sequence[str],
    place: Callable[[Cell, str], tuple[str, str]],
) -> list[str]:
    """The share that held, and of how many, by two axes."""
    pools = _pooled(found, lambda cell, output: "\n".join(place(cell, output)))
    names = [OUTPUTS.get(column, column) for column in columns]
    lines = [f"| {title} | " + " | ".join(names) + " |", "|" + "---|" * (len(columns) + 1)]
    for row in rows:
        counts = [pools.get(f"{row}\n{column}", [0, 0]) for column in columns]
        cells = [f"{held / shown:.4f} of {shown:,}" if shown else "" for held, shown in counts]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def _of(counted: Mapping[Cell, Sequence[int]], source: str) -> str:
    each = [counts for cell, counts in counted.items() if cell.source == source]
    right, tried = (sum(counts[at] for counts in each) for at in (0, 1))
    return f"{right / tried:.4f} of {tried:,}" if tried else ""


def main() -> int:
    """Measure, write the page, and say whether the gates held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=Size.trials, help="for each world and source")
    parser.add_argument("--target-trials", type=int, default=Size.target_trials)
    parser.add_argument("--seed", type=int, default=Size.seed)
    parser.add_argument("--values", action="append", choices=VALUES, help="default: all")
    parser.add_argument("--source", action="append", choices=SOURCES, help="default: all")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    size = Size(
        options.trials,
        options.target_trials,
        options.seed,
        tuple(options.values or VALUES),
        tuple(options.source or SOURCES),
    )
    with TemporaryDirectory() as directory:
        found = measure(Path(directory), size)
    options.report.write_text(report(found, size), encoding="utf-8")
    bad = failures(found)
    said = "\n".join(bad) if bad else f"all {len(gates(found)):,} gates held"
    Console(stderr=True).print(said, markup=False)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
