"""Daily expenditures of Linear Road: one-time questions to a static table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from examples.linear_road.queries import EXPENDITURES
from examples.linear_road.traffic import DAYS

if TYPE_CHECKING:
    from shedder.engine.engine import Engine

CARS = 1_000  # With a history; a car beyond has the history of the car whose number it ends in.
TOLL_MAX = 100
Spent = dict[tuple[int, int], int]


def history(db: Engine, cars: int = CARS, seed: int = 1) -> Spent:
    """Fill the table, and return its tolls by car and day."""
    rng = np.random.default_rng(seed)
    vid, day = (each.ravel() for each in np.mgrid[0:cars, 1 : DAYS + 1])
    toll = rng.integers(0, TOLL_MAX, len(vid))
    columns = {"id": np.arange(len(vid)), "vid": vid, "day": day, "toll": toll}
    db.push("spent", pa.table(columns | {"xway": np.zeros(len(vid), np.int64)}))
    keys = zip(vid.tolist(), day.tolist(), strict=True)
    return dict(zip(keys, toll.tolist(), strict=True))


def answer_expenditures(db: Engine, requests: pa.Table, spent: Spent) -> int:
    """Answer the requests of a stretch of time with one question; return how many there were.

    Raises:
      AssertionError: an answer differs from the history.
    """
    cars = [vid % CARS for vid in requests["vid"].to_pylist()]
    asked = set(zip(cars, requests["day"].to_pylist(), strict=True))
    if not asked:
        return 0
    wanted = ", ".join(str(vid * DAYS + day - 1) for vid, day in sorted(asked))
    answer = db.execute(EXPENDITURES.format(wanted)).table
    columns = (answer[name].to_pylist() for name in ("vid", "day", "toll"))
    found = {(vid, day): toll for vid, day, toll in zip(*columns, strict=True)}
    assert found == {key: spent[key] for key in asked}, (found, asked)
    return requests.num_rows
