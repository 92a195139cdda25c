"""A part of the log is damaged: it is told when opening, and no answer calls itself whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shedder.archive.holes import holes
from shedder.cli.exits import ExitCode
from shedder.cli.main import run as command
from shedder.engine.engine import Engine
from synopses.estimate import Bound
from tests.engine.world import CREATE, requests

ROWS = 3_000
LOST = "1,000 tuples, positions 1000 to 2000"
QUESTION = """SELECT COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, AVG(hits) AS a,
    MIN(hits) AS lo, MAX(hits) AS hi, STDDEV(hits) AS sd, COUNT(DISTINCT client) AS d,
    QUANTILE(hits, 0.5) AS q, MIN(domain) AS t FROM requests"""


@pytest.mark.parametrize(
    ("held", "removed", "found"),
    [
        ([], 0, ()),
        ([(0, 5), (5, 9)], 0, ()),
        ([(5, 9), (0, 3), (12, 13)], 0, ((3, 5), (9, 12))),
        ([(5, 9)], 0, ((0, 5),)),
        ([(5, 9)], 5, ()),
        ([(5, 9)], 4, ((4, 5),)),
        ([(-90, -80), (-10, -5), (0, 2)], 0, ()),
    ],
)
def test_holes_are_between_what_is_held_and_above_what_was_removed(held, removed, found):
    assert holes(held, removed=removed) == found


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three batches in the log and in no run; the second one's record has a flipped bit."""
    with Engine.open(tmp_path / "whole") as engine:
        engine.execute(CREATE)
        for first in range(0, ROWS, 1_000):
            engine.push("requests", requests(ROWS, 1).slice(first, 1_000))
        shutil.copytree(tmp_path / "whole", tmp_path / "data")  # As a kill leaves it.
        engine.whole = engine.execute(QUESTION)
        (tmp_path / "whole.json").write_text(json.dumps(engine.whole.rows()[0], default=str))
    (log,) = (tmp_path / "data" / "log").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return tmp_path / "data"


def test_answers_from_what_is_left_say_so_and_hold_the_whole(damaged: Path) -> None:
    whole = json.loads((damaged.parent / "whole.json").read_text())
    with Engine.open(damaged) as engine:
        answer = engine.execute(QUESTION)
        assert not answer.complete
        assert any(LOST in note for note in answer.notes)
        assert answer.rows()[0]["n"] == 2_000
        assert answer.rows()[0]["n_high"] == ROWS
        assert answer.rows()[0]["t_bound"] == "none"
        for name in ["n", "nb", "s", "a", "lo", "hi", "sd", "d", "q"]:
            found = answer.estimate(0, name)
            assert found.bound is not Bound.EXACT, name
            if found.bound is Bound.INTERVAL:
                assert found.low <= whole[name] <= found.high, name
    with Engine.open(damaged) as engine:  # Now from a run, and a checkpoint.
        engine.push("requests", requests(1_000, 2))
        engine.seal("requests")
        assert engine.execute(QUESTION).rows()[0]["n_high"] == ROWS + 1_000
    with Engine.open(damaged) as engine:
        assert engine.execute(QUESTION).rows()[0]["n_high"] == ROWS + 1_000


def test_the_command_line_tells_it(damaged: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = ["sql", "-d", str(damaged), "-c", "SELECT COUNT(*) AS n FROM requests"]
    assert command(told) == ExitCode.FINE
    said = capfd.readouterr()
    assert LOST in said.err
    assert json.loads(said.out)["n_bound"] == "interval"
    assert command(["check", "-d", str(damaged)]) == ExitCode.DAMAGED
