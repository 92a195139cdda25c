"""Views and standing INSERTs in an engine that is killed, against a loop over tuples."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import (
    CREATE,
    PICKED,
    START_US,
    Picked,
    batch,
    drawn_tuples,
)
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

SLIDE_US = 40
RANGE_US = 100
VIEWS = f"""
CREATE VIEW picked AS {PICKED};
CREATE VIEW few RETAIN 1 DAY AS SELECT * FROM picked WHERE next > 4;
CREATE VIEW kinds AS SELECT kind, COUNT(*) AS n FROM s [RANGE INTERVAL '0.0001' SECOND
  SLIDE INTERVAL '0.00004' SECOND] GROUP BY kind;
CREATE VIEW whole AS SELECT COUNT(*) AS n FROM s [RANGE INTERVAL '0.0001' SECOND
  SLIDE INTERVAL '0.00004' SECOND];
CREATE VIEW left AS SELECT DSTREAM(id) FROM picked [RANGE INTERVAL '0.0001' SECOND];
CREATE STREAM t (at TIMESTAMP, id DOUBLE, note VARCHAR) TIMESTAMP BY at;
CREATE QUERY copy AS INSERT INTO t (id, at) SELECT id, _ts FROM few;
"""
STEPS = {"push": 0.5, "promise": 0.1, "seal": 0.06, "checkpoint": 0.14, "look": 0.1, "kill": 0.1}


def stored(db, text):
    """Rows of a query that is asked once, sorted."""
    return sorted(tuple(row.values()) for row in db.execute(text).table.to_pylist())


def since(column):
    """Text of the microseconds of a column after START_US."""
    return f"(CAST({column} AS BIGINT) - {START_US})"


def slides_until(watermark, first):
    """Instants of slides, from the first tuple on, up to a watermark."""
    begin = ((START_US + first) // SLIDE_US + 1) * SLIDE_US - START_US
    return range(begin, watermark + 1, SLIDE_US)


def counts_of_slides(timely, slides):
    """Rows of the view `kinds`: a kind, its count, and the instant before a slide."""
    found = []
    for instant in slides:
        counts = Counter(kind for time, kind in timely if instant - RANGE_US <= time < instant)
        found += [(kind, count, instant - 1) for kind, count in counts.items()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 40)))
def test_each_row_is_inserted_once_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("views", world))
    truth, timely = Picked(), list[tuple[int, int]]()
    kept = int(rng.choice([1 << 16, 8 << 20]))  # Few, so that restarts begin late; or all.
    db = Engine.open(tmp_path / "0", run_rows=64, row_output_bytes_max=kept)
    db.execute(CREATE)
    for text in VIEWS.strip().rstrip(";").split(";"):
        db.execute(text)
    db.register("sums", "SELECT COUNT(*) AS n, SUM(id) AS total FROM picked")
    ids = now = 0
    for step in range(1, scaled(40, 60)):
        now += int(rng.integers(0, 15))
        match rng.choice(list(STEPS), p=list(STEPS.values())):
            case "push":
                rows = drawn_tuples(rng, ids, now)
                ids += len(rows)
                db.push("s", batch(rows))
                mark = truth.watermark
                timely += [(time, kind) for time, _, kind in rows if mark is None or time >= mark]
                truth.push(rows)
            case "promise":
                db.heartbeat("s", START_US + now)
                truth.promise(now)
            case "seal":
                db.seal("picked")
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "look":
                assert len(stored(db, "SELECT id FROM picked")) == len(truth.made)
            case "kill":
                copied = copy_killed(db, tmp_path / str(step))
                db.close()
                db = Engine.open(copied, run_rows=64, row_output_bytes_max=kept)
    made = sorted(row[:3] for row in truth.made)
    few = [row for row in made if row[1] > 4]
    assert truth.watermark is not None
    gone = [(id_,) for id_, _, time in made if time + RANGE_US < truth.watermark]
    time = since("_ts")
    assert stored(db, f"SELECT id, next, {time} FROM picked") == made
    assert stored(db, f"SELECT id, next, {time} FROM few") == few
    assert stored(db, f"SELECT id, {since('at')} FROM t WHERE note IS NULL") == [
        (id_, time) for id_, _, time in few
    ]
    assert stored(db, "SELECT id FROM left") == gone
    slides = slides_until(truth.watermark, min(time for time, _ in timely))
    counts = counts_of_slides(timely, slides)
    assert stored(db, f"SELECT kind, n, {time} FROM kinds") == sorted(counts)
    totals = Counter({instant - 1: 0 for instant in slides})
    for _, count, instant in counts:
        totals[instant] += count
    assert stored(db, f"SELECT {time}, n FROM whole") == sorted(totals.items())
    assert db.schema("few").retain_us == 86_400_000_000
    [sums] = db.query("sums").answer().table.select(["n", "total"]).to_pylist()
    db.close()
    assert (sums["n"], sums["total"] or 0) == (len(made), sum(row[0] for row in made))
