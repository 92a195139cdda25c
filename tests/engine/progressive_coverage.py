"""Coverage of answers when reading stops: `python -m tests.engine.progressive_coverage`.

A trial deals a population into blocks afresh, reads a pilot and then what the target needs, and
asks whether the interval at which it stopped holds the truth. Trials that end in reading all of it
are counted apart: those answers are exact. The target is what a fixed tenth of the tuples reaches,
so that reading stops on the way. All cells take half an hour of a core, on as many processes as
there are cores. Cells are kept as they come (kept_rows.py), so a run that was ended goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pyarrow as pa

from shedder.archive.reductions.uniform import Uniform
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.answer_builder import finish
from tests.archive.dealt import DealtRuns
from tests.engine.scanning import scan_of
from tests.queries.all_outputs import population
from tests.queries.asking import SCHEMA, ask, truth
from tests.synopses.kept_rows import FILE, KeptRows

PAGE = """# Coverage of answers that read until they are narrow enough

Written by `make coverage` (`tests/engine/progressive_coverage.py`): {trials:,} trials a cell at
95 %. In each, 24,000 tuples are dealt afresh into three runs of 48 blocks, one of them divided,
and a tail; a pilot of some blocks plans what is read; what is counted is whether the interval at
which reading stopped holds the truth. Trials that end in reading everything are exact, and not
counted. Targets are what a fixed tenth of the tuples reaches, so that reading stops on the way;
where a heavy tail lets no part of so few tuples tell anything, it does not stop.
"""
REPORT: Final = Path(__file__).parents[2] / "docs" / "coverage_progressive.md"
_HEAD: Final = (
    "| aggregate | distribution | stopped on the way | share read | held |",
    "|---|---|---:|---:|---:|",
)
SIZE, RUNS, BLOCKS, HALVINGS = 24_000, (9_000, 8_000, 6_000), 48, 3
CONFIDENCE = 0.95
DRAWN = ("uniform", "normal", "zipf", "lognormal-2", "constant", "adversarial")
AGGREGATES: Mapping[str, str] = {
    "count": "COUNT(*) AS x FROM requests WHERE client % 3 = 0 OR bytes IS NULL",
    "sum": "SUM(bytes) AS x FROM requests",
    "sum of few": "SUM(bytes) AS x FROM requests WHERE domain <> 'd1'",
    "average": "AVG(bytes) AS x FROM requests",
    "average of few": "AVG(client) AS x FROM requests WHERE domain <> 'd1'",
    "variance": "VARIANCE(bytes) AS x FROM requests",
    "deviation": "STDDEV(client) AS x FROM requests",
    "quantile": "QUANTILE(bytes, 0.75) AS x FROM requests",
    "share": "CDF(bytes, 0.5) AS x FROM requests",
    "distinct": "COUNT(DISTINCT client) AS x FROM requests",
    "groups": "domain, COUNT(*) AS x FROM requests GROUP BY domain",
    "group averages": "domain, AVG(bytes) AS x FROM requests GROUP BY domain",
}


@dataclass(slots=True)
class Stopped:
    """What became of the trials of one cell: values held of those claimed, and how much was read.

    partly: trials that stopped on the way; share: the mean share of the tuples they had read.
    """

    aggregate: str
    distribution: str
    trials: int = 0
    partly: int = 0
    claimed: int = 0
    held: int = 0
    share: float = 0.0

    @property
    def coverage(self) -> float:
        """Of the values claimed when reading stopped on the way."""
        return self.held / self.claimed if self.claimed else float("nan")


def measured(aggregate: str, distribution: str, trials: int, first: int = 0) -> Stopped:
    """One cell."""
    data = population(distribution, SIZE)
    query = ask(AGGREGATES[aggregate] + _target(aggregate, data))
    exact = finish(query, truth(query, data))
    known = {row.get("domain"): row["x"] for row in exact.rows()}
    found = Stopped(aggregate, distribution)
    dealt = DealtRuns(SCHEMA, data, RUNS, BLOCKS, first, HALVINGS)
    for trial in range(first, first + trials):
        dealt.deal(trial)
        _try(query, dealt, known, found, trial)
    return found


def _target(aggregate: str, data: pa.RecordBatch) -> str:
    """The widest interval of a fixed tenth; where there is none, one that is never reached."""
    query = ask(AGGREGATES[aggregate])
    dealt = DealtRuns(SCHEMA, data, RUNS, BLOCKS, 20261121, HALVINGS)
    look = scan_of(query, dealt, Uniform(0.9)).read(None)
    assert look is not None
    answer = finish(query, look.evidence)
    widths = [answer.estimate(at, "x").half_width for at in range(answer.table.num_rows)]
    wide = max((width for width in widths if 0 < width < float("inf")), default=1e-6)
    return f" WITHIN {wide:.9f} ABSOLUTE"


def _try(
    query: BoundQuery,
    dealt: DealtRuns,
    known: Mapping[str | None, float],
    found: Stopped,
    trial: int,
) -> None:
    look = scan_of(query, dealt, seed=trial).read(None)
    found.trials += 1
    if look is None:
        return
    found.partly += 1
    found.share += (look.share - found.share) / found.partly
    answer = finish(query, look.evidence)
    for at, row in enumerate(answer.rows()):
        if row["x_bound"] == "none" or row["x"] is None:
            continue
        estimate = answer.estimate(at, "x")
        slack = 1e-9 * max(1.0, abs(known[row.get("domain")]))
        found.claimed += 1
        found.held += estimate.low - slack <= known[row.get("domain")] <= estimate.high + slack


def _row(cell: Future[Stopped] | None) -> list[float]:
    assert cell, "a cell that is not kept is measured"
    found = cell.result()
    return [found.trials, found.partly, found.claimed, found.held, found.share]


def _line(aggregate: str, distribution: str, row: Sequence[float]) -> str:
    trials, partly, claimed, held = (int(each) for each in row[:4])
    found = Stopped(aggregate, distribution, trials, partly, claimed, held, row[4])
    stopped = f"{partly:,} of {trials:,}"
    share = f"{found.coverage:.4f}" if claimed else ""
    return f"| {aggregate} | {distribution} | {stopped} | {found.share:.3f} | {share} |"


def main() -> None:
    """Measure, and write a line per cell: aggregate, distribution, trials, coverage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--aggregate", action="append", choices=AGGREGATES, help="default: all")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args()
    lines = [PAGE.format(trials=options.trials), *_HEAD]
    kept, table = KeptRows(FILE), f"stopped, {options.trials:,} trials"
    cells = list(product(options.aggregate or AGGREGATES, DRAWN))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        measuring = {
            cell: pool.submit(measured, *cell, options.trials)
            for cell in cells
            if not kept.holds(table, ", ".join(cell))
        }
        for cell in cells:
            row = kept.row(table, ", ".join(cell), partial(_row, measuring.get(cell)))
            lines.append(_line(*cell, row))
    options.report.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
