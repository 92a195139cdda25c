"""Coverage of answers when reading stops: `python -m tests.engine.progressive_coverage`.

A trial deals a population into blocks afresh, reads a pilot and then what the target needs, and
asks whether the interval at which it stopped holds the truth. Trials that end in reading all of it
are counted apart: those answers are exact. The target is what a fixed tenth of the tuples reaches,
so that reading stops on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import pyarrow as pa

from shedder.archive.reductions.uniform import Uniform
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.answer_builder import finish
from tests.archive.dealt import DealtRuns
from tests.engine.scanning import scan_of
from tests.queries.all_outputs import population
from tests.queries.asking import SCHEMA, ask, truth

PAGE = """# Coverage of answers that read until they are narrow enough

Written by `make coverage` (`tests/engine/progressive_coverage.py`): {trials:,} trials a cell at
95 %. In each, 24,000 tuples are dealt afresh into three runs of 48 blocks, one of them divided,
and a tail; a pilot of some blocks plans what is read; what is counted is whether the interval at
which reading stopped holds the truth. Trials that end in reading everything are exact, and not
counted. Targets are what a fixed tenth of the tuples reaches, so that reading stops on the way;
where a heavy tail lets no part of so few tuples tell anything, it does not stop.
"""
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


def main(arguments: Sequence[str]) -> None:
    """Print a line per cell: aggregate, distribution, trials, coverage."""
    trials = int(arguments[0]) if arguments else 2_000
    wanted = arguments[1].split(",") if len(arguments) > 1 else list(AGGREGATES)
    print(PAGE.format(trials=trials))
    print("| aggregate | distribution | stopped on the way | share read | held |")
    print("|---|---|---:|---:|---:|")
    cells = [(aggregate, distribution) for aggregate in wanted for distribution in DRAWN]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for cell in pool.map(measured, *zip(*cells, strict=True), [trials] * len(cells)):
            partly = f"{cell.partly:,} of {cell.trials:,}"
            held = "" if not cell.claimed else f"{cell.coverage:.4f}"
            of = f"{cell.aggregate} | {cell.distribution}"
            print(f"| {of} | {partly} | {cell.share:.3f} | {held} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
