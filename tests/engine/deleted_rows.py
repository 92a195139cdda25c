"""A stream with deleted rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from tests.engine.supervised import Supervised
from tests.engine.world import CREATE, requests

ROWS = 3_000
QUESTION = """SELECT domain, COUNT(*) AS n, COUNT(bytes) AS nb, SUM(hits) AS s, MIN(ts) AS first,
    FIRST(hits) AS f, LAST(hits) AS l, QUANTILE(bytes, 0.5) AS q
    FROM requests GROUP BY domain ORDER BY domain"""


def filled(directory, layout: str) -> Engine:
    """Three runs and a tail."""
    engine = Engine.open(
        directory, machine=Supervised(), purge_share=1.0
    )  # Purges only by request.
    engine.execute(f"{CREATE} ARCHIVE {layout}")
    table = requests(ROWS, 1, disorder_s=5)
    for first in range(0, ROWS, 800):
        engine.push("requests", table.slice(first, 800))
        if first < 2_400:
            engine.seal("requests")
    return engine


def said(engine: Engine, text: str) -> str:
    return engine.execute(text).table["status"][0].as_py()


def bad(table: pa.Table) -> np.ndarray:
    hits = np.asarray(table["hits"])
    return hits < 25
