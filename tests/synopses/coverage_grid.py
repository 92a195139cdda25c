"""The full grid: `python -m tests.synopses.coverage_grid` measures it and writes docs/coverage.md.

What fails the gate is listed, and the exit code is 1. The rules: `gate` of tests/truth.py.
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

from tests.synopses.coverage import ALL_CONFIDENCES, METHODS, Outcome, full_grid, measure
from tests.synopses.kept_rows import FILE, KeptRows
from tests.synopses.sketch_coverage import SketchOutcome, measure_sketch, sketch_cells
from tests.synopses.width_table import section as widths
from tests.truth import DISTRIBUTIONS, gate

WIDTH_MAX = 1.5  # Times the ideal width, where the method promises to be near it.
POOLED_SLACK = 0.01  # A pool of many cells may not fall further below its confidence.
POOLED_TRIALS_MIN = 2000  # Below, chance alone can take a pool that far.
_PREFACE = f"""\
Written by `python -m tests.synopses.coverage_grid`. Every cell is a population of {{size:,}} tuples
behind a filter, sampled {{trials}} times by the real samples with fresh seeds; its intervals are
held against the exact answer. A cell fails when so few of its intervals hold that an honest method
would do so once in a million, or when they are over {WIDTH_MAX} times as wide as the ideal on
average and the method promises otherwise there; a method fails when all its cells together fall
{POOLED_SLACK} below the confidence. Ideal is the width of a normal interval that knew the true
variance; for quantiles that of the narrowest two sampled values that hold whatever was sampled,
with knowledge of the population: steps and gaps of the data are in it, too. Where the quantile is a
value of several tuples (Zipf) it is that of the two with the fewest ranks between them: an end on
that value adds nothing to the width, and no method knows on which side it ends.

The methods are those that answers from a live sample are made with, and a sample is one simple
random sample of its stream. Windows of which stretches were read at different rates are measured by
`tests.engine.thinned_coverage_grid`. MIN, MAX and TOP, groups and whole answers are
measured end to end by `tests/queries/test_coverage_of_answers.py`."""
_LEGEND = """\
`certified` is the share of intervals that are normal because the known range of the column allows
it, with their own coverage; all other intervals assume no distribution. `width` is the median over
the cells that are held to the ideal, `elsewhere` over the others of which an ideal is known."""
_SKETCHES = """\
Sketches skip nothing, so their error depends on their size and on the data alone. HLL has 2^9 or
2^12 registers, frequent items has tables of 64. Certain bounds may not miss once: the bucket of a
quantile, the counts of listed items and that no item outside the list is above a guaranteed one.
Half-widths are relative to the truth: KLL and REQ bound ranks, not values, and a tail shows it.
Each cell of theirs draws values of its own, so that of two confidences the smaller may be wider
where the data have gaps (spike, pareto)."""
REPORT = Path(__file__).parents[2] / "docs" / "coverage.md"


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    """What the gate objects to, one line each."""
    found = []
    pools: dict[tuple[str, float], list[int]] = defaultdict(lambda: [0, 0])
    for outcome in outcomes:
        cell = outcome.cell
        if outcome.hits < gate(outcome.trials, cell.confidence):
            found.append(f"{cell}: held {outcome.hits} of {outcome.trials}")
        if outcome.gated and outcome.width > WIDTH_MAX:
            found.append(f"{cell}: {outcome.width:.2f} times the ideal width")
        for name, held, tried in (
            (cell.method, outcome.hits, outcome.trials),
            (f"{cell.method} (certified)", outcome.certified_hits, outcome.certified),
        ):
            pool = pools[name, cell.confidence]
            pool[0] += held
            pool[1] += tried
    for (name, confidence), (held, tried) in pools.items():
        if tried >= POOLED_TRIALS_MIN and held < (confidence - POOLED_SLACK) * tried:
            found.append(f"{name} at {confidence:.0%}: pooled {held / tried:.4f} of {tried}")
    return found


def sketch_failures(outcomes: Iterable[SketchOutcome]) -> list[str]:
    """What the gate objects to in sketches; a certain bound may never miss."""
    found = []
    for outcome in outcomes:
        fewest = outcome.trials
        if not outcome.certain:
            fewest = gate(outcome.trials, outcome.cell.confidence)
        if outcome.hits < fewest:
            found.append(f"{outcome.cell}: held {outcome.hits} of {outcome.trials}")
    return found


def sketch_report(outcomes: list[SketchOutcome]) -> str:
    """The section on sketches."""
    bad = sketch_failures(outcomes)
    lines = [
        "",
        "## Sketches",
        "",
        *_SKETCHES.split("\n"),
        "",
        f"Cells: {len(outcomes)}. Failures: {len(bad)}.",
        "",
        *(f"- {line}" for line in bad),
        "| sketch | data | confidence | held | half-width |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        cell = outcome.cell
        claim = "certain" if outcome.certain else f"{cell.confidence:.0%}"
        held, width = outcome.hits / outcome.trials, f"{outcome.half_width:.2%}"
        lines.append(f"| {cell.sketch} | {cell.data} | {claim} | {held:.3f} | {width} |")
    return "\n".join(lines) + "\n"


def report(outcomes: list[Outcome], *, size: int, trials: int) -> str:
    """The results as a page of Markdown."""
    bad = failures(outcomes)
    lines = [
        "# Coverage of the intervals",
        "",
        *_PREFACE.format(size=size, trials=trials).split("\n"),
        "",
        f"Cells: {len(outcomes):,}. Failures: {len(bad)}.",
        "",
        *(f"- {line}" for line in bad),
        "",
        "## By method",
        "",
        *_LEGEND.split("\n"),
        "",
        (
            "| method | confidence | cells | held | lowest cell | certified | these held | width "
            "| elsewhere |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    confidences = sorted({outcome.cell.confidence for outcome in outcomes})
    for method in METHODS:
        for confidence in confidences:
            some = [
                o for o in outcomes if (o.cell.method, o.cell.confidence) == (method, confidence)
            ]
            if some:
                lines.append(_row(method, confidence, some))
    for title, rows, key in (
        ("distribution", list(DISTRIBUTIONS), lambda o: o.cell.distribution),
        (
            "rate",
            sorted({f"1/{round(1 / o.cell.rate)}" for o in outcomes}, key=lambda r: int(r[2:])),
            lambda o: f"1/{round(1 / o.cell.rate)}",
        ),
        (
            "filter",
            sorted({f"{o.cell.selectivity:g}" for o in outcomes}, key=float, reverse=True),
            lambda o: f"{o.cell.selectivity:g}",
        ),
    ):
        for confidence in confidences:
            some = [o for o in outcomes if o.cell.confidence == confidence]
            lines += _cross(title, confidence, rows, key, some)
    return "\n".join(lines) + "\n"


def _row(method: str, confidence: float, outcomes: list[Outcome]) -> str:
    tried = sum(o.trials for o in outcomes)
    certified = sum(o.certified for o in outcomes)
    held = sum(o.certified_hits for o in outcomes)
    lowest = min(o.hits / o.trials for o in outcomes)
    near = [o.width for o in outcomes if o.gated]
    far = [o.width for o in outcomes if not o.gated and np.isfinite(o.width)]
    cells = [
        method,
        f"{confidence:.0%}",
        f"{len(outcomes)}",
        f"{sum(o.hits for o in outcomes) / tried:.4f}",
        f"{lowest:.3f}",
        f"{certified / tried:.2f}" if certified else "",
        f"{held / certified:.4f}" if certified else "",
        f"{np.median(near):.2f}" if near else "",
        f"{np.median(far):.1f}" if far else "",
    ]
    return "| " + " | ".join(cells) + " |"


def _cross(
    title: str,
    confidence: float,
    columns: list[str],
    key: Callable[[Outcome], str],
    outcomes: list[Outcome],
) -> list[str]:
    """A table of methods against one axis: the share of intervals that held."""
    pools: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for outcome in outcomes:
        pool = pools[outcome.cell.method, key(outcome)]
        pool[0] += outcome.hits
        pool[1] += outcome.trials
    lines = ["", f"## By {title}, at {confidence:.0%}", ""]
    lines.append("| method | " + " | ".join(columns) + " |")
    lines.append("|" + "---|" * (len(columns) + 1))
    for method in METHODS:
        cells = [pools.get((method, column), [0, 0]) for column in columns]
        shown = [f"{held / tried:.3f}" if tried else "" for held, tried in cells]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return lines


def main() -> int:
    """Measure, write the page, and say whether the gate held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument(
        "--confidence", type=float, action="append", help="default: 0.68, 0.95 and 0.99"
    )
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    console = Console(stderr=True)
    outcomes = []
    cells = full_grid(tuple(options.confidence or ALL_CONFIDENCES))
    for cell in track(cells, "coverage", console=console):
        outcome = measure(cell, size=options.population, trials=options.trials)
        if outcome is not None:
            outcomes.append(outcome)
    sketches = [
        measure_sketch(cell, trials=options.trials)
        for cell in track(sketch_cells(), "sketches", console=console)
    ]
    page = report(outcomes, size=options.population, trials=options.trials)
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(
        page + widths(KeptRows(FILE)) + sketch_report(sketches), encoding="utf-8"
    )
    bad = failures(outcomes) + sketch_failures(sketches)
    console.print("\n".join(bad) if bad else f"all {len(outcomes):,} cells held")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
