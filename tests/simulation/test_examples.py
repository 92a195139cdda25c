"""The scenarios that ship: each keeps what it claims, and every invariant."""

from __future__ import annotations

import pytest

from shedder.simulation.scenario import Scenario
from tests.documents import ROOT
from tests.scale import scaled
from tests.seeds import seed
from tests.simulation.worlds import run

EXAMPLES = sorted((ROOT / "examples/simulations").glob("*.toml"))
PARTS = 4  # A per-change run takes one part, by the places of the scenarios.
KEPT = [path for at, path in enumerate(EXAMPLES) if (at - seed("examples")) % PARTS == 0]


def test_there_are_a_dozen():
    assert len(EXAMPLES) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("path", scaled(KEPT, EXAMPLES), ids=lambda path: path.stem)
def test_what_is_claimed_comes_out(path):
    _, result = run(Scenario.read(path), keep_all=False)
    missed = [claim for claim in result.claims if not claim.held]
    assert not missed
    assert not result.problems
    assert result.claims
    assert all(each.checked for each in result.answers.values())
