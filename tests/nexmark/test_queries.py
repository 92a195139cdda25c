"""Queries of NEXMark over the same events in the engine and in DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.nexmark.events import (
    AUCTIONS,
    CREATE,
    CREATE_SIDE,
    GROUP,
    PERSONS,
    Auctions,
    side_rows,
)
from benchmarks.nexmark.queries import QUERIES
from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

EVENTS = scaled(3_000, 30_000)
STEPS = scaled(3, 12)
EMITTED = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")  # Their rows do not leave.
EVENT_US = 50_000_000 // EVENTS  # 50 seconds of event time.


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("nexmark") / "data"
    with Engine.open(directory, memory_bytes=16 << 30, row_query_bytes_max=1 << 30) as engine:
        setups = [statement for query in QUERIES.values() for statement in query.setup]
        for statement in (*CREATE.values(), CREATE_SIDE, *setups):
            engine.execute(statement)
        engine.push("side", side_rows())
        yield engine


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Rows as a bag; a sum of doubles depends on the order of its addends."""
    columns = [
        np.round(column.to_numpy(), 3).tolist()
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return Counter(zip(*columns, strict=True))


def relation(answer: Answer) -> Counter[tuple[object, ...]]:
    """The rows of an answer, without intervals."""
    return bag(answer.table.select(answer.outputs))


def test_every_query_has_the_rows_of_duckdb_at_every_instant(db):
    house = Auctions(seed("nexmark"), EVENT_US)
    standing = {name: query for name, query in QUERIES.items() if query.standing}
    for name, query in standing.items():
        db.register(name, query.cql)
    emitted = {name: db.query(name).subscribe() for name in EMITTED}
    oracle = duckdb.connect()
    oracle.register("side", side_rows())
    pushed: dict[str, list[pa.RecordBatch]] = {stream: [] for stream in CREATE}
    for step in range(STEPS):
        first, end = (EVENTS * at // STEPS for at in (step, step + 1))
        for stream, batch in house.events(first, end - first).items():
            db.push(stream, pa.Table.from_batches([batch]))
            pushed[stream].append(batch)
            oracle.register("all", pa.Table.from_batches(pushed[stream]))
            oracle.execute(
                f'CREATE OR REPLACE TABLE {stream} AS SELECT *, epoch_us(ts) AS us FROM "all"'
            )
        as_of = house.time_us(end)
        for stream in (*CREATE, "closing"):
            db.heartbeat(stream, as_of)
        for view in (view for query in QUERIES.values() for view in query.views):
            db.execute(f"SELECT COUNT(*) FROM {view}")  # It waits for the rows of the view.
        for name, query in QUERIES.items():
            truth = bag(oracle.sql(query.sql.format(e=as_of)).to_arrow_table())
            if step == STEPS - 1:
                assert relation(db.execute(query.cql)) == truth, name
            if name in standing and name not in emitted:
                assert relation(db.query(name).answer()) == truth, name
    for name, batches in emitted.items():
        truth = bag(oracle.sql(QUERIES[name].sql.format(e=as_of)).to_arrow_table())
        got: Counter[tuple[object, ...]] = Counter()
        while got.total() < truth.total():
            got += bag(next(batches).table.drop_columns(["_ts", "_sign"]))
        assert got == truth, name


def test_events_come_in_the_published_proportions():
    batches = Auctions(7).events(0, 100 * GROUP)
    assert batches["person"].num_rows == 100 * PERSONS
    assert batches["auction"].num_rows == 100 * AUCTIONS
    assert batches["bid"].num_rows == 100 * (GROUP - PERSONS - AUCTIONS)
    times = np.concatenate(
        [batch.column("ts").cast(pa.int64()).to_numpy() for batch in batches.values()]
    )
    assert np.array_equal(np.sort(times), [Auctions(7).time_us(at) for at in range(100 * GROUP)])


def test_the_same_seed_gives_the_same_events_and_another_gives_others():
    one, same, other = (Auctions(each).events(50, 500) for each in (1, 1, 2))
    assert one == same
    assert one["bid"] != other["bid"]


def test_half_of_the_bids_are_for_the_hot_auction():
    bids = Auctions(3).events(0, 50_000)["bid"]
    hot = np.count_nonzero(bids.column("auction").to_numpy() % 100 == 0)
    share = hot / bids.num_rows
    assert 0.49 < share < 0.53
