"""The full grid of thinned panes: `python -m tests.engine.thinned_coverage_grid`.

It measures every cell of thinned_coverage.py and writes docs/coverage_thinning.md. What fails the
gate is listed, and the exit code is 1. The rules: `gate` of tests/truth.py.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from tests.engine.thinned_coverage import (
    CONFIDENCES,
    GROUPINGS,
    METHODS,
    PROFILES,
    SELECTIVITIES,
    Outcome,
    full_grid,
    measure,
)
from tests.synopses.coverage_grid import POOLED_SLACK, POOLED_TRIALS_MIN, WIDTH_MAX
from tests.truth import DISTRIBUTIONS, gate

REPORT = Path(__file__).parents[2] / "docs" / "coverage_thinning.md"
_PREFACE = f"""\
Written by `python -m tests.engine.thinned_coverage_grid`. Every cell is a population of {{size:,}}
tuples in the order of time, of which stretches were read thinned, as a level that changes within
a window leaves them, and is asked of the parts that panes answer with. In {{trials}} worlds other
rows were read. A filter is a WHERE (*of all*: the basics know how many tuples pass it) or one group
among others (*of a group*: their number is unknown).

A cell fails when so few of its intervals hold that an honest method would do so once in a million,
when one that is certain misses once, or when they are over {WIDTH_MAX} times as wide as a normal
interval that knew the true variance, although every stratum is certified; a method fails when all
its cells together fall {POOLED_SLACK} below the confidence. What has the bound `none` promises
nothing and is counted apart."""
_LEGEND = """\
`none`: the share of trials without a bound. `certain`: bounds that may not miss once. `width`: over
the ideal one, the median of the cells that are held to it. `half-width`: relative to the truth, the
median over cells and, beside it, over those without a filter."""
Key = Callable[[Outcome], str]


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    """What the gate objects to, one line each."""
    found = []
    pools: dict[tuple[str, float], list[int]] = defaultdict(lambda: [0, 0])
    for outcome in outcomes:
        cell, fewest = outcome.cell, outcome.trials
        if not outcome.certain:
            fewest = gate(outcome.trials, cell.confidence)
            pool = pools[f"{cell.method} {cell.grouping}", cell.confidence]
            pool[0] += outcome.hits
            pool[1] += outcome.trials
        if outcome.hits < fewest:
            found.append(f"{cell}: held {outcome.hits} of {outcome.trials}")
        if outcome.gated and outcome.width > WIDTH_MAX:
            found.append(f"{cell}: {outcome.width:.2f} times the ideal width")
    for (name, confidence), (held, tried) in pools.items():
        if tried >= POOLED_TRIALS_MIN and held < (confidence - POOLED_SLACK) * tried:
            found.append(f"{name} at {confidence:.0%}: pooled {held / tried:.4f} of {tried}")
    return found


def report(outcomes: list[Outcome], *, size: int, trials: int) -> str:
    """The results as a page of Markdown."""
    bad = failures(outcomes)
    lines = ["# Coverage of thinned queries", ""]
    lines += _PREFACE.format(size=size, trials=trials).split("\n")
    lines += ["", f"Cells: {len(outcomes):,}. Failures: {len(bad)}.", ""]
    lines += [f"- {line}" for line in bad]
    lines += ["", "## By aggregate", "", *_LEGEND.split("\n"), ""]
    titles = ["aggregate", "asked", "confidence", "cells", "held", "lowest", "none", "width"]
    titles.append("half-width")
    lines += ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    confidences = sorted({outcome.cell.confidence for outcome in outcomes})
    for method in METHODS:
        for grouping in GROUPINGS:
            for confidence in confidences:
                place = method, grouping, confidence
                some = [o for o in outcomes if _place(o) == place]
                if some:
                    lines.append(_row(*place, some))
                if some and all(outcome.certain for outcome in some):
                    break  # At every confidence alike.
    axes: list[tuple[str, list[str], Key]] = [
        ("distribution", list(DISTRIBUTIONS), lambda o: o.cell.distribution),
        ("profile", list(PROFILES), lambda o: o.cell.profile),
        ("filter", [f"{s:g}" for s in SELECTIVITIES], lambda o: f"{o.cell.selectivity:g}"),
    ]
    for title, columns, key in axes:
        for confidence in confidences:
            some = [o for o in outcomes if o.cell.confidence == confidence]
            lines += _cross(f"By {title}, at {confidence:.0%}", columns, key, some)
    return "\n".join(lines) + "\n"


def _place(outcome: Outcome) -> tuple[str, str, float]:
    return outcome.cell.method, outcome.cell.grouping, outcome.cell.confidence


def _row(method: str, grouping: str, confidence: float, outcomes: list[Outcome]) -> str:
    tried, held = (sum(getattr(o, name) for o in outcomes) for name in ("trials", "hits"))
    none = sum(o.unbounded for o in outcomes)
    lowest = min((o.hits / o.trials for o in outcomes if o.trials), default=np.nan)
    certain = all(o.certain for o in outcomes)
    near = [o.width for o in outcomes if o.gated and np.isfinite(o.width)]
    cells = [
        method,
        grouping,
        "certain" if certain else f"{confidence:.0%}",
        f"{len(outcomes)}",
        f"{held / tried:.4f}" if tried else "",
        f"{lowest:.3f}" if tried else "",
        f"{none / (none + tried):.2f}" if none else "",
        f"{np.median(near):.2f}" if near else "",
        f"{_middle(outcomes)} / {_middle([o for o in outcomes if o.cell.selectivity == 1.0])}",
    ]
    return "| " + " | ".join(cells) + " |"


def _middle(outcomes: list[Outcome]) -> str:
    """The median relative half-width."""
    widths = [o.half_width for o in outcomes if np.isfinite(o.half_width)]
    return f"{np.median(widths):.1%}" if widths else "-"


def _cross(title: str, columns: list[str], key: Key, outcomes: list[Outcome]) -> list[str]:
    """A table of aggregates against one axis: the share that held, and the median half-width."""
    lines = ["", f"## {title}", "", "| aggregate | " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * (len(columns) + 1))
    for method in METHODS:
        cells = []
        for column in columns:
            some = [o for o in outcomes if o.cell.method == method and key(o) == column]
            tried, held = (sum(getattr(o, name) for o in some) for name in ("trials", "hits"))
            cells.append(f"{held / tried:.3f}, ±{_middle(some)}" if tried else "none")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Measure, write the page, and say whether the gate held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--confidence", type=float, action="append", help="default: all three")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    console = Console(stderr=True)
    cells = full_grid(tuple(options.confidence or CONFIDENCES))
    measured = (
        measure(cell, size=options.population, trials=options.trials)
        for cell in track(cells, "thinned", console=console)
    )
    outcomes = [outcome for outcome in measured if outcome is not None]
    page = report(outcomes, size=options.population, trials=options.trials)
    options.report.write_text(page, encoding="utf-8")
    bad = failures(outcomes)
    console.print("\n".join(bad) if bad else f"all {len(outcomes):,} cells held")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
