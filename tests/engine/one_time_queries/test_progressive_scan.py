"""Scans in part: they stop when the target is met, say what they read, and never lie on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from shedder.archive.reductions.by_age import ByAge
from shedder.archive.reductions.reduction import BlockStatistics
from shedder.archive.reductions.uniform import Uniform
from shedder.archive.tasks.deadline import Deadline
from shedder.errors import BadReduction, DeadlineExceeded
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.one_time.plan import ScanEstimate, TimeRange
from synopses.intervals.sequential_looks import rows_wanted
from tests.archive.dealt import DealtRuns
from tests.engine.progressive_coverage import AGGREGATES, DRAWN, Stopped, measured
from tests.engine.scanning import scan_of
from tests.queries.asking import SCHEMA, ask, exact_rows, rows, truth
from tests.truth import gate

DATA = rows(60_000)
DEALT = DealtRuns(SCHEMA, DATA, [30_000, 25_000], 64, 1)
COUNTED = "COUNT(*) AS n FROM requests WHERE ok"


def answered(text: str, dealt: DealtRuns = DEALT, *arguments, **options) -> Answer:
    query = ask(text)
    look = scan_of(query, dealt, *arguments, **options).read(None)
    assert look is not None
    return finish(query, look.evidence)


def test_it_stops_when_the_target_is_met_and_says_what_it_read():
    answer = answered(COUNTED + " WITHIN 5 PERCENT")
    assert answer.met is True
    assert answer.confidence == pytest.approx(0.95)
    part = answer.archive
    assert part is not None
    assert 0 < part.blocks_read < part.blocks / 2 == 64
    assert 0 < part.bytes_read < part.bytes_stored
    assert answer.archive_share_read == pytest.approx(part.blocks_read / part.blocks, rel=0.05)
    assert part.looks == 2
    assert answer.sources == ("archive sample", "tail")


def test_a_coarser_target_reads_less():
    read = [
        answered(COUNTED + f" WITHIN {percent} PERCENT").archive.bytes_read
        for percent in (5, 8, 40)
    ]
    assert read[0] > read[1] > read[2]


def test_what_the_pilot_meets_needs_no_second_look():
    answer = answered(COUNTED + " WITHIN 50 PERCENT")
    assert answer.archive.looks == 1


def test_a_pilot_that_meets_the_target_by_far_has_nearly_all_of_delta():
    """Its half width was 1.364 times that of one look, whatever the target was."""
    near, far = (
        scan_of(ask(f"{COUNTED} WITHIN {percent} PERCENT"), DEALT).read(None)
        for percent in (12, 50)
    )
    narrow, wide = (finish(ask(COUNTED), each.evidence).estimate(0, "n") for each in (far, near))
    assert near.error > 1 / 3 >= far.error
    assert wide.half_width > 1.25 * narrow.half_width


def test_a_pilot_that_nearly_meets_is_looked_at_again_with_what_is_left_of_delta():
    pilot = scan_of(ask(COUNTED + " WITHIN 50 PERCENT"), DEALT).read(None)
    target = 50 * pilot.error / 1.1
    answer = answered(f"{COUNTED} WITHIN {target:.9f} PERCENT")
    assert answer.met is True
    assert answer.archive.looks == 2
    assert answer.archive.blocks_read == pilot.evidence.archive.blocks_read


@pytest.mark.parametrize(
    "text",
    [
        COUNTED + " WITHIN 0.01 PERCENT",
        "COUNT(*) AS n FROM requests WHERE client = 499 WITHIN 10 PERCENT",
        "AVG(bytes) AS a FROM requests WHERE client = 12345 WITHIN 10 PERCENT",
        "LAST(bytes) AS x FROM requests WITHIN 1 PERCENT",
        "client, COUNT(*) AS n FROM requests GROUP BY client WITHIN 5 PERCENT",
    ],
)
def test_what_no_part_can_answer_is_read_in_full(text):
    assert scan_of(ask(text), DEALT).read(None) is None


def test_every_group_meets_its_target_before_it_stops():
    answer = answered("domain, COUNT(*) AS n FROM requests GROUP BY domain WITHIN 25 PERCENT")
    assert answer.table.num_rows == 8
    assert answer.met is True
    assert answer.missing is not None
    assert 0 < answer.missing.weight_max < 3_000
    assert answer.missing.confidence == pytest.approx(0.95)


def test_only_rows_that_are_shown_must_meet_the_target():
    text = "domain, COUNT(*) AS n FROM requests GROUP BY domain ORDER BY n DESC LIMIT 1"
    few = answered(text + " WITHIN 5 PERCENT")
    assert few.met is True
    assert few.archive.blocks_read < 40


def test_a_stretch_of_time_is_a_filter_on_the_runs():
    query = ask(COUNTED + " WITHIN 10 PERCENT")
    look = scan_of(query, DEALT, stretch=TimeRange(10_000, 50_000)).read(None)
    found = finish(query, look.evidence).estimate(0, "n")
    [true] = exact_rows(query, DATA, 10_000, 50_000)["a0"].to_pylist()
    assert 0.8 * true < found.value < 1.2 * true


def test_without_a_filter_a_count_is_known_and_one_look_is_enough():
    answer = answered("COUNT(*) AS n, MAX(client) AS m FROM requests WITHIN 1 PERCENT")
    assert answer.rows()[0]["n_bound"] == answer.rows()[0]["m_bound"] == "exact"
    assert answer.rows()[0]["n"] == 60_000


@pytest.mark.parametrize("reduction", [0.0, 0.5, 0.75, 0.98])
def test_a_uniform_reduction_is_given_by_whole_blocks(reduction):
    query = ask(COUNTED)
    look = scan_of(query, DEALT, Uniform(reduction)).read(None)
    if reduction == 0.0:
        assert look is None  # All of it: exactly.
        return
    part = look.evidence.archive
    assert (part.asked_min, part.asked_max) == (reduction, reduction)
    whole = 2 * np.ceil((1 - reduction) * 64)
    assert 0.9 * whole <= part.blocks_read <= whole + 2  # Of each run one more at most.
    assert part.given_min == part.given_max <= reduction
    assert finish(query, look.evidence).met is None


def test_a_reduction_that_does_not_read_on_is_given_whatever_the_target_is():
    answer = answered(COUNTED + " WITHIN 0.01 PERCENT", DEALT, Uniform(0.9))
    assert answer.met is False
    assert answer.archive.looks == 1


def test_different_reductions_make_strata_and_one_answer():
    dealt = DealtRuns(SCHEMA, DATA, [15_000] * 4, 64, 1)
    query = ask("COUNT(*) AS n, AVG(bytes) AS a, MEDIAN(client) AS m FROM requests WHERE ok")
    scan = scan_of(query, dealt, ByAge(15_000, 0.9))
    look = scan.read(None)
    part = look.evidence.archive
    assert part.asked_min == 0.0
    assert part.asked_max == pytest.approx(0.875)
    read = [each.blocks_read for each in scan.sample.runs]
    assert read == pytest.approx([8, 16, 32, 64], rel=0.15)
    answer = finish(query, look.evidence)
    exact = finish(query, truth(query, DATA)).rows()[0]
    for name, wide in {"n": 0.05, "a": 0.8, "m": 1.0}.items():
        found = answer.estimate(0, name)
        assert found.low <= exact[name] <= found.high
        assert found.half_width <= wide * abs(exact[name])


def test_many_different_reductions_are_brought_to_few_that_are_finer():
    dealt = DealtRuns(SCHEMA, DATA, [5_000] * 12, 16, 1)

    @dataclass(frozen=True)
    class Numbered:
        reads_on: ClassVar[bool] = False

        def wanted(self, block: BlockStatistics) -> float:
            return 0.4 + block.start_us / 60_000 * 0.5

    scan = scan_of(ask(COUNTED), dealt, Numbered())
    part = scan.read(None).evidence.archive
    shares = [each.blocks_read / each.blocks for each in scan.sample.runs]
    least = [1 - (0.4 + at * 5_000 / 60_000 * 0.5) for at in range(12)]
    assert all(share >= one - 1e-9 for share, one in zip(shares, least, strict=True))
    assert len({each.share for each in scan.sample.runs}) <= 3
    assert (part.asked_min, part.asked_max) == pytest.approx((0.4, 0.4 + 55 / 60 * 0.5))


@dataclass
class Curious:
    """Reads on by halves, and remembers what it was told."""

    blocks: list[BlockStatistics] = field(default_factory=list)
    reads_on: ClassVar[bool] = True

    def wanted(self, block: BlockStatistics) -> float:
        self.blocks.append(block)
        return max(0.7, 0.98 - 0.05 * block.scan.look)


def test_an_r_udf_is_asked_before_every_run_and_after_every_look():
    query = ask(COUNTED + " WITHIN 0.1 PERCENT")
    curious = Curious()
    look = scan_of(query, DEALT, curious).read(None)
    assert look.error > 1.0
    looks = [block.scan.look for block in curious.blocks]
    assert looks == sorted(looks)
    assert set(looks) == set(range(max(looks) + 1))
    errors = [block.scan.error for block in curious.blocks[2::2]]
    assert errors[0] > errors[-1] > 1.0
    first = curious.blocks[0]
    assert (first.rows, first.blocks, first.start_us, first.end_us) == (30_000, 64, 0, 29_999)
    assert first.newest_us == 54_999
    assert first.scan.rows == 55_000  # What is in no run is at hand.
    assert first.columns["bytes"].low > 0


def test_an_r_udf_that_raises_fails_the_scan_with_its_name():
    @dataclass(frozen=True)
    class Broken:
        reads_on: ClassVar[bool] = False

        def wanted(self, block: BlockStatistics) -> float:
            return 1 / 0

    with pytest.raises(BadReduction, match=r"test\(\) failed: ZeroDivisionError"):
        scan_of(ask(COUNTED), DEALT, Broken()).read(None)


class Clock(Deadline):
    """A deadline that passes after some questions."""

    def __init__(self, questions: int) -> None:
        super().__init__()
        self.left = questions

    def left_s(self) -> float | None:
        self.left -= 1
        if self.left < 0:
            raise DeadlineExceeded("no answer within 1 s")
        return None


def test_when_the_time_is_up_the_last_look_is_the_answer():
    pilot = answered(COUNTED + " WITHIN 50 PERCENT").archive.blocks_read
    query = ask(COUNTED + " WITHIN 6 PERCENT")
    look = scan_of(query, DEALT, deadline=Clock(pilot)).read(None)  # A block asks the clock once.
    assert look.is_late
    assert "the time was up" in look.evidence.notes[-1]
    answer = finish(query, look.evidence)
    assert answer.met is False
    assert answer.archive.looks == 1


def test_when_the_time_is_up_before_the_first_look_there_is_no_answer():
    with pytest.raises(DeadlineExceeded):
        scan_of(ask(COUNTED + " WITHIN 6 PERCENT"), DEALT, deadline=Clock(1)).read(None)


def test_a_look_at_the_live_sample_plans_the_first_read():
    """It is a look, too: what it has spent of delta is gone."""
    query = ask(COUNTED + " WITHIN 9 PERCENT")
    alone = scan_of(query, DEALT).read(None).evidence
    before = ScanEstimate(alone, error=3.0, share=1_000 / 55_000)
    planned = scan_of(query, DEALT).read(before).evidence
    wanted = rows_wanted(population=55_000, read=1_000, error=3.0, look=0, confidence=0.95)
    assert planned.archive.looks == 2
    assert planned.archive.asked_max == pytest.approx(1 - wanted / 55_000)


def test_progress_counts_the_tuples_that_are_read():
    deadline = Deadline()
    scan_of(ask(COUNTED + " WITHIN 5 PERCENT"), DEALT, deadline=deadline).read(None)
    assert deadline.progress.share == 1.0
    assert deadline.progress.done > 1_000


# --- coverage at the stopping point ---------------------------------------------------------------

PROGRESSIVE_PAGE = Path(__file__).parents[3] / "docs" / "coverage_progressive.md"
HELD_ROUNDED = 0.5e-4  # The page gives it to four digits.
QUICK = [("count", "normal"), ("sum", "uniform"), ("average", "normal"), ("groups", "zipf")]


def _gated(cell: Stopped, *, groups: int) -> None:
    assert cell.partly >= 0.5 * cell.trials, cell
    # Groups of one scan are not independent trials: one scan counts as one.
    assert cell.claimed <= groups * cell.partly
    assert cell.held >= gate(cell.partly, 0.95) * cell.claimed / cell.partly, cell


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize(("aggregate", "distribution"), QUICK)
def test_the_interval_at_which_reading_stopped_holds_the_truth(aggregate, distribution):
    _gated(measured(aggregate, distribution, trials=100, first=10_000), groups=8)


def _below_the_gate(page: str) -> tuple[list[str], set[tuple[str, str]]]:
    """Lines of a page that hold the truth too seldom, and all of its cells."""
    below, cells = [], set()
    for line in page.splitlines():
        cell = [field.strip() for field in line.strip("|").split("|")]
        if not line.startswith("|") or cell[0] in {"aggregate", "---"}:
            continue
        aggregate, distribution, stopped, _, held = cell
        partly, trials = (int(number.replace(",", "")) for number in stopped.split(" of "))
        assert trials == 2_000, line
        assert (aggregate, distribution) not in cells, line
        cells.add((aggregate, distribution))
        if float(held or "nan") * partly < gate(partly, 0.95) - HELD_ROUNDED * partly or not held:
            below.append(line)
    return below, cells


def test_every_cell_of_the_page_holds_the_truth_as_often_as_it_says():
    page = PROGRESSIVE_PAGE.read_text()
    below, cells = _below_the_gate(page)
    assert below == []
    assert cells == {(aggregate, name) for aggregate in AGGREGATES for name in DRAWN}
    line = next(line for line in page.splitlines() if line.startswith("| sum | normal |"))
    lower = f"{line.rsplit('|', 2)[0]}| 0.9250 |"
    assert _below_the_gate(page.replace(line, lower))[0] == [lower]


@pytest.mark.slow
@pytest.mark.coverage_gate
def test_all_cells_pooled_hold_the_truth_as_often_as_they_say():
    cells = [measured(aggregate, name, trials=4) for aggregate in AGGREGATES for name in DRAWN]
    claimed = sum(cell.claimed for cell in cells)
    assert claimed > 200
    assert sum(cell.held for cell in cells) >= 0.94 * claimed
    assert {cell.aggregate for cell in cells if cell.claimed} == set(AGGREGATES)
