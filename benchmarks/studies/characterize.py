"""`make characterize`: how large the errors of every summary are, and how often intervals hold.

Writes docs/characterization.md and its pictures. `python -m benchmarks.studies.characterize 16`
runs a sixteenth of the trials and lengths, into a directory of its own (the second argument).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.studies.error_plots import draw
from benchmarks.studies.error_studies import all_studies
from benchmarks.studies.error_study import CONFIDENCES, Study

DOCS = Path(__file__).parents[2] / "docs"
_HEAD = """# How large the errors are

Written by `make characterize` in the manner of datasketches-characterization: streams grow from one
tuple to {most:,}, and at each of the log-spaced lengths every trial is asked. In the pictures the
black line is the median of the error over all trials; the blue lines hold 68.3, 95.5 and 99.7 % of
the trials between them; the red dashes are what the summary's `profile` promises for 1, 2 and
3 sigma (a certain bound has one line). Blue inside red is a promise kept; blue far inside red is a
promise that could be tighter on this kind of stream, for what is promised holds for every stream
(and, for KLL, for the worst of all ranks at once).

Coverage is the share of the intervals that held the truth, over all trials, lengths and (for
quantiles) ranks of 1, 10, 50, 90 and 99 %. Answers that were called exact are not counted: they
were right in every case, or the run would have ended. A certain interval has to hold always. The
lengths of one trial are not independent of each other, so the last digits say little.

Windows that are merged from panes: counts, HLL, theta and log buckets are byte for byte what one
pass would make (the laws of tests/laws.py), KLL, REQ and frequent items are shown with 16 panes,
too.
"""


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _share(study: Study, confidence: float) -> str:
    covered = study.coverage(confidence)
    return "all exact" if covered is None else f"{covered:.4f}"


def section(title: str, studies: Sequence[Study], directory: str) -> str:
    """A heading, the picture, and the coverage of each study."""
    rows = [
        f"| {study.stream} | {len(study.errors[0]):,} | {study.trials[0.95]:,} | "
        + " | ".join(_share(study, confidence) for confidence in CONFIDENCES)
        + " |"
        for study in studies
    ]
    certain = " Intervals are certain, whatever the confidence." if studies[0].certain else ""
    return "\n".join(
        [
            f"## {title}",
            "",
            f"Error: {studies[0].unit}.{certain}",
            "",
            f"![{title}]({directory}/{_slug(title)}.svg)",
            "",
            "| stream | trials | intervals | 68 % | 95 % | 99 % |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Run all studies, draw them, write the page."""
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    docs = Path(sys.argv[2]) if len(sys.argv) > 2 else DOCS
    studies = []
    for run in all_studies(scale):
        began = time.perf_counter()
        study = run()
        studies.append(study)
        spent = time.perf_counter() - began
        print(f"{study.summary}, {study.stream}: {spent:.1f} s", file=sys.stderr, flush=True)
    most = max(study.lengths[-1] for study in studies)
    sections = [_HEAD.format(most=most), f"Measured on {machine()}.\n"]
    for title, group in groupby(studies, key=lambda study: study.summary):
        same = list(group)
        draw(same, docs / "characterization" / f"{_slug(title)}.svg")
        sections.append(section(title, same, "characterization"))
    (docs / "characterization.md").write_text("\n".join(sections).rstrip() + "\n")


if __name__ == "__main__":
    main()
