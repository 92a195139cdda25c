"""Standing aggregates of wide texts without groups hold a bounded number of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.window_state.group_memory_cap import TEXTS_BYTES_MAX
from shedder.queries.answers.database_api import Receipt

SECOND = 1_000_000
CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, g BIGINT, t VARCHAR) TIMESTAMP BY ts"
WIDE = 5_500_000  # Bytes; two of them are too many for one aggregate.
AGGREGATES = "MIN(t) AS lo, MAX(t) AS hi, FIRST(t) AS first, LAST(t) AS last, TOP(t, 3) AS top"
ENDS = {"lo": "a", "hi": "z", "first": "k", "last": "m"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path, overload="off", audit="off") as engine:
        engine.execute(CREATE)
        yield engine


def push(db: Engine, texts: list[str], second: int) -> Receipt:
    times = second * SECOND + np.arange(len(texts))
    rows = {"ts": pa.array(times, pa.timestamp("us")), "g": [1] * len(texts), "t": texts}
    return db.push("s", pa.table(rows))


def standing_bytes(db: Engine, name: str) -> int:
    return db.core.standing_query(name)[1].state.size_bytes


@pytest.mark.slow
def test_wide_texts_are_cut_and_flagged_and_what_fits_is_exact(db: Engine, tmp_path: Path) -> None:
    """After a cut, short texts take the place of cut ones, and are exact."""
    db.register("q", f"SELECT {AGGREGATES} FROM s")
    for letter in "kazm":
        push(db, [letter * WIDE], 1 + "kazm".index(letter))
    shutdown = db.query("q").answer().rows()
    assert standing_bytes(db, "q") < 3 * TEXTS_BYTES_MAX
    db.close()
    with Engine.open(tmp_path, overload="off", audit="off") as again:
        for [row] in (shutdown, again.query("q").answer().rows()):
            for name, letter in ENDS.items():
                assert row[f"{name}_bound"] == "none"
                assert len(row[name]) > WIDE // 2
                assert row[name].strip(letter) == ""
            assert row["top_bound"] != "exact"
        push(again, ["A", "~"], 9)
        [row] = again.query("q").answer().rows()
        assert (row["lo"], row["lo_bound"]) == ("A", "exact")
        assert (row["last"], row["last_bound"]) == ("~", "exact")
        assert row["first_bound"] == "none"


@pytest.mark.slow
def test_many_panes_of_wide_texts_stay_within_the_bytes_of_one(db: Engine) -> None:
    """A window of 64 panes would hold 64 MiB of texts in each of its three synopses."""
    db.register("q", f"SELECT {AGGREGATES} FROM s [RANGE 64 SECONDS SLIDE 1 SECOND]")
    for second in range(70):
        receipt = push(db, ["a" * (1 << 20), *[f"{second % 7}" * 1_000] * 3], second)
    assert standing_bytes(db, "q") < 4 * TEXTS_BYTES_MAX
    answer = db.query("q").answer(after=receipt)
    assert (answer.start_us, answer.end_us) == (5 * SECOND, 69 * SECOND)
    [row] = answer.rows()
    assert (row["lo"], row["lo_bound"]) == ("0" * 1_000, "exact")
    assert (row["hi_bound"], row["hi"].strip("a")) == ("none", "")
    assert (row["first_bound"], row["last_bound"]) == ("none", "exact")
    assert (len(row["top"]), row["top_bound"]) == (3, "interval")
    for item in row["top"]:  # 64 panes have 3 rows of each of seven texts.
        assert item["low"] <= 3 * sum(f"{n % 7}" == item["value"][0] for n in range(5, 69))
        assert item["high"] >= 27


@pytest.mark.slow
def test_groups_that_have_room_and_get_wide_texts_grow_to_twice_the_cap(tmp_path: Path) -> None:
    with Engine.open(tmp_path, overload="off", audit="off", group_bytes_max="1MiB") as db:
        db.execute(CREATE)
        db.register("q", "SELECT g, MIN(t) AS lo, LAST(t) AS last FROM s GROUP BY g")
        for width in (1, 20_000):
            times = width * SECOND + np.arange(500)
            texts = [f"{number:03}".ljust(width, "x") for number in range(500)]
            rows = {"ts": pa.array(times, pa.timestamp("us")), "g": np.arange(500), "t": texts}
            db.push("s", pa.table(rows))
        assert standing_bytes(db, "q") < 6 << 20
        for row in db.query("q").answer().rows():
            number = row["g"]
            if number is not None:
                assert (row["lo"], row["lo_bound"]) == (f"{number:03}", "exact")
                assert row["last"].startswith(f"{number:03}x")
                assert row["last_bound"] == "none"
