"""A directory whose panes another version wrote opens, and says what it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

import shedder
from shedder.errors import InternalError
from synopses import header
from tests.engine.world import CREATE, requests

WINDOW = "[RANGE INTERVAL '5' MINUTE SLIDE INTERVAL '10' SECOND]"
RANKS = f"SELECT QUANTILE(bytes, 0.9) AS p FROM requests {WINDOW} WITHIN 0.02 RANK"


@pytest.mark.slow
@pytest.mark.parametrize("window", [WINDOW, ""], ids=["closed panes", "an open pane"])
def test_a_query_of_an_older_layout_fails_alone_and_comes_back_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str
) -> None:
    text = RANKS.replace(WINDOW, window)
    with monkeypatch.context() as older, shedder.open(tmp_path / "data") as db:
        older.setitem(header.LAYOUTS, header.Kind.KLL, 1)
        db.execute(CREATE)
        db.register("ranks", text)
        db.register("wider", text.replace("5' MINUTE", "8' MINUTE"))  # Takes the other's panes.
        db.register("rows", f"SELECT COUNT(*) AS n FROM requests {WINDOW}")
        receipt = db.push("requests", requests(20_000, seed=3))
        before = db.query("ranks").answer(after=receipt).rows()[0]
        counted = db.query("rows").answer().rows()[0]["n"]
        db.close()  # The checkpoint is written while the older layout is in force.
    for _ in range(2):  # It is told again after another checkpoint.
        with shedder.open(tmp_path / "data") as db:
            assert db.query("rows").answer().rows()[0]["n"] == counted
            for name in ("ranks", "wider"):
                with pytest.raises(
                    InternalError,
                    match=f"'{name}' was stored by another version.*layout of kll is 1, expected 2"
                    ".*register it again",
                ):
                    db.query(name).answer()
    with shedder.open(tmp_path / "data") as db:
        db.query("ranks").drop()
        after = db.register("ranks", text).answer().rows()[0]
        assert after["p_low"] <= before["p_high"]
        assert before["p_low"] <= after["p_high"]
