"""A directory whose panes another version wrote opens, and says what it cannot read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import pytest

import shedder
from shedder.archive.archive_store import Store
from shedder.errors import InternalError
from synopses.model.binary_header import LAYOUTS, MAGIC, Kind
from tests.engine.world import CREATE, requests

SIZES = struct.Struct("<4x2xH8xQ")  # Bytes of the parameters and of the body, in a header.
WINDOW = "[RANGE INTERVAL '5' MINUTE SLIDE INTERVAL '10' SECOND]"
RANKS = f"SELECT QUANTILE(bytes, 0.9) AS p FROM requests {WINDOW} WITHIN 0.02 RANK"


def older(blob: bytes) -> bytes:
    """Return the same bytes, in which every KLL sketch declares layout 1."""
    data = bytearray(blob)
    begins = MAGIC + bytes((LAYOUTS[Kind.KLL], Kind.KLL))
    at = data.find(begins)
    while at >= 0:
        parameters, body = SIZES.unpack_from(data, at)
        end = at + SIZES.size + parameters + body
        data[at + len(MAGIC)] = 1
        data[end : end + 4] = google_crc32c.value(bytes(data[at:end])).to_bytes(4, "little")
        at = data.find(begins, end)
    return bytes(data)


def make_older(directory: Path, names: Sequence[str]) -> None:
    """Rewrite the stored panes of queries as a version with another layout wrote them."""
    changed = 0
    store = Store.open(directory)
    catalog = store.catalog
    for name in names:
        for pane in catalog.panes(name, -(1 << 63), (1 << 63) - 1):
            changed += older(pane.blob) != pane.blob
            catalog.put_pane(name, pane.start_us, older(pane.blob))
    before = catalog.checkpoint_parts()
    parts = {key: older(blob) for key, blob in before.items()}
    changed += parts != before
    catalog.write_checkpoint(catalog.checkpoint_sequence(), parts)
    store.close()
    assert changed


@pytest.mark.slow
@pytest.mark.parametrize("window", [WINDOW, ""], ids=["closed panes", "an open pane"])
def test_a_query_of_an_older_layout_fails_alone_and_comes_back_from_the_archive(
    tmp_path: Path, window: str
) -> None:
    text = RANKS.replace(WINDOW, window)
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        db.register("ranks", text)
        db.register("wider", text.replace("5' MINUTE", "8' MINUTE"))  # Takes the other's panes.
        db.register("rows", f"SELECT COUNT(*) AS n FROM requests {WINDOW}")
        receipt = db.push("requests", requests(20_000, seed=3))
        before = db.query("ranks").answer(after=receipt).rows()[0]
        counted = db.query("rows").answer().rows()[0]["n"]
    make_older(tmp_path / "data", ("ranks", "wider"))
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
