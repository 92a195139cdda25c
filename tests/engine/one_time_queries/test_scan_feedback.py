"""What an r-UDF wants is heard while a scan goes on: it is asked when the scan comes to a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from shedder.archive.reductions.by_load import ByLoad
from shedder.archive.reductions.reduction import BlockStatistics, Reduction
from shedder.archive.tasks.deadline import Deadline
from shedder.engine.one_time_queries.progressive_scan import ProgressiveScan
from shedder.errors import BadReduction
from shedder.queries.evidence.answer_builder import finish
from tests.archive.dealt import DealtRuns
from tests.engine.scanning import scan_of
from tests.queries.asking import SCHEMA, ask, rows, truth
from tests.truth import gate

RUNS, ROWS, TOGETHER = 20, 1_000, 4
DATA = rows(RUNS * ROWS)
DEALT = DealtRuns(SCHEMA, DATA, [ROWS] * RUNS, 16, 1)
COUNTED = ask("COUNT(*) AS n FROM requests WHERE ok")
TRUE = finish(COUNTED, truth(COUNTED, DATA)).rows()[0]["n"]


@dataclass(frozen=True)
class Wants:
    """What a function of the block says."""

    says: Callable[[BlockStatistics], float]
    reads_on: ClassVar[bool] = False

    def wanted(self, block: BlockStatistics) -> float:
        return self.says(block)


def scanning(reduction: Reduction, dealt: DealtRuns = DEALT, **options) -> ProgressiveScan:
    """A scan that asks again after every four runs."""
    scan = scan_of(COUNTED, dealt, reduction, **options)
    return replace(scan, part_runs=TOGETHER, part_rows=1)


def shares(scan: ProgressiveScan) -> np.ndarray:
    """What was read of the runs, in order. Shape [parts, runs of a part]."""
    found = [each.blocks_read / each.blocks for each in scan.sample.runs]
    return np.array(found).reshape(-1, TOGETHER)


def holds(scan: ProgressiveScan) -> bool:
    look = scan.read(None)
    assert look is not None
    found = finish(COUNTED, look.evidence).estimate(0, "n")
    return bool(found.low <= TRUE <= found.high)


def test_what_was_read_so_far_is_told_and_may_decide():
    """The scan keeps to a number of tuples that it would not have known beforehand."""
    rows_read: list[int] = []

    def thrifty(block: BlockStatistics) -> float:
        rows_read.append(block.scan.rows_read)
        return 0.5 if block.scan.rows_read < 3_000 else 0.9

    scan = scanning(Wants(thrifty))
    assert holds(scan)
    expected = np.array([[0.5] * 4] * 2 + [[0.1] * 4] * 3)
    assert shares(scan) == pytest.approx(expected, abs=1 / 16)  # Of 16 blocks.
    assert rows_read[:RUNS] == [0] * RUNS  # First, to plan; then as it comes to them.
    assert sorted(set(rows_read[RUNS:])) == sorted(rows_read[RUNS::TOGETHER])
    assert len(rows_read) == 2 * RUNS - TOGETHER
    assert scan.requested == [0.5] * 8 + [0.9] * 12


def test_by_load_gives_way_while_it_reads_and_takes_what_comes_free():
    loads = iter([0.5] * RUNS + [1.0] * 8 + [0.0] * 8)
    scan = scanning(ByLoad(0.9, lambda: next(loads)))
    look = scan.read(None)
    assert look is not None
    part = look.evidence.archive
    assert part is not None
    assert (part.asked_min, part.asked_max) == (0.0, 0.9)
    assert shares(scan)[1:].tolist() == [[0.125] * 4] * 2 + [[1.0] * 4] * 2
    assert shares(scan)[0] == pytest.approx([0.55] * 4, abs=1 / 16)


def test_of_ever_new_reductions_the_later_ones_are_brought_to_few():
    loads = iter(np.linspace(0.3, 0.9, 1 + RUNS).repeat([RUNS] + [1] * RUNS).tolist())
    scan = scanning(ByLoad(1.0, lambda: next(loads)))
    assert holds(scan)
    given = [each.share for each in scan.sample.runs]
    assert len(set(given)) <= 12
    wanted = [1 - reduction for reduction in scan.requested]
    assert all(share >= one for share, one in zip(given, wanted, strict=True))


@pytest.mark.slow
def test_whatever_the_load_does_meanwhile_the_interval_holds():
    held = 0
    for seed in range(100):
        chance = np.random.default_rng(seed)
        dealt = DealtRuns(SCHEMA, DATA, [ROWS] * RUNS, 16, seed)
        load = ByLoad(0.95, lambda chance=chance: float(chance.choice([0.2, 0.6, 1.0])))
        held += holds(scanning(load, dealt, seed=seed))
    assert held >= gate(100, 0.95)


def test_when_it_comes_to_want_more_than_fits_everything_is_read_instead():
    wants = Wants(lambda block: 0.9 if not block.scan.rows_read else 0.1)
    width = 16 * len(scanning(wants).sample.columns)
    scan = replace(scanning(wants), bytes_max=width * RUNS * ROWS // 2)
    assert scan.read(None) is None
    assert 0 < scan.sample.rows_read < RUNS * ROWS / 2
    assert set(scan.requested) == {0.9, 0.1}  # Of a lazy run this is what it is marked by.


def test_one_that_fails_on_the_way_fails_by_name():
    def failing(block: BlockStatistics) -> float:
        return float("nan") if block.scan.rows_read else 0.5

    with pytest.raises(BadReduction, match=r"test\(\) wants nan"):
        scanning(Wants(failing)).read(None)


def test_progress_is_of_the_whole_scan():
    seen: list[float] = []

    class Watched(Deadline):
        def check(self) -> None:
            seen.append(self.progress.share)

    deadline = Watched()
    scanning(Wants(lambda _: 0.5), deadline=deadline).read(None)
    assert seen == sorted(seen)
    assert seen[len(seen) // 2] < 0.7
    assert deadline.progress.share == 1.0
