"""Memory accounting is true: what synopses say they hold is what the process grew by."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind
from shedder.engine.window_state.group_memory_cap import GROUP_BYTES_LEAST
from tests.engine.memory_grown import NEW_KEYS, ONE_WINDOW, feed, standing
from tests.scale import scaled

MIB = 1 << 20


ALONE = (
    "extremes by group",
    "extremes of texts by group",
    "items by group",
    "texts by group",
    *NEW_KEYS,
    *ONE_WINDOW,
)


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), *scaled((), ((name,) for name in ALONE))], ids="-".join)
def test_what_standing_queries_say_they_hold_is_what_the_process_grew_by(
    names: tuple[str, ...],
) -> None:
    """All kinds together, or one alone, in a separate process: above 64 MB, within 10 %."""
    command = [sys.executable, "-m", "tests.engine.memory_grown", *names]  # (): all of `QUERIES`.
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    memory = json.loads(done.stdout)
    assert memory["said"] > 64 * MIB, names
    assert abs(memory["said"] - memory["grown"]) <= 0.1 * memory["grown"], names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums of new keys", "some new keys"])
def test_keys_that_are_new_in_every_pane_go_with_the_last_pane_that_has_them(name: str) -> None:
    """Panes of 1,000 tuples, 45 at a time, where there is room for a fifth more groups."""
    panes = scaled(200, 400)
    room = 45_000 * 6 // 5
    query = standing(name, 40)
    cells = sum(query.grid.cells_max(query.query.schema.lateness_us))
    query = standing(name, 40, cap_bytes=room * cells * GROUP_BYTES_LEAST[SynopsisKind.MOMENTS])
    said = []
    for size_bytes in feed([query], panes, 1_000):
        said.append(size_bytes)
        assert query.keys is not None
        assert query.keys.size <= room + 1
        assert query.panes.others_share == 0.0  # A group that found no room would be there.
    assert len(query.panes) <= 45
    assert max(said[panes // 2 :]) <= 1.1 * max(said[: panes // 2])
