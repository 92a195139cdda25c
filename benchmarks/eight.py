"""Eight standing aggregates on one core, in process: no disk, no wire."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # Read once, when polars is imported.

import duckdb
import polars as pl
import pyarrow as pa

from benchmarks.measure import Report
from benchmarks.workloads.trades import BATCH_ROWS, CREATE, QUERIES, START_US, batches
from shedder.archive.log.records import Batch
from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import CreateStream, Select
from shedder.engine.allocation.negotiation import group_bytes, negotiate
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.synopsis_plan import plan
from shedder.engine.window_state.query_state import QueryState
from shedder.gc_tuning import keeping_what_is_loaded
from shedder.overload.load_meter import ROWS_MAX
from shedder.settings import Settings
from shedder.streams.frame import Frame
from shedder.streams.live_sample import StreamSample
from shedder.streams.positions import Positions
from shedder.wire.malloc_tuning import keep_big_blocks
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.group_table import GroupTable
from synopses.kernels.hashing import murmur_int64
from synopses.moments.moments import GroupedMoments
from synopses.precompile import compile_kernels

TUPLES = 512 * BATCH_ROWS
AT_ONCE = 4  # Batches that are read as one where they wait, as the server does under load.
SYNOPSIS_BYTES = 256 << 20
PASSES = 5


def stream_of(queries: dict[str, str]) -> Stream:
    """A live stream with standing queries and the samples that registration would give it."""
    statement = parse(CREATE)
    assert isinstance(statement, CreateStream)
    schema = StreamSchema(
        name=statement.name,
        columns=statement.columns,
        time_column=statement.time_column,
        lateness_us=statement.lateness_us,
        retain_us=None,
        layout=statement.layout,
        seed=1,
    )
    settings = Settings()
    sharp: dict[str, Any] = {"weighted": ["value"], "hashed": ["key"]} if queries else {}
    sample = StreamSample(schema, rows=settings.sample_rows, **sharp)
    stream = Stream(1, schema, sample, tuple, future_us_max=settings.future_us_max)
    for name, text in queries.items():
        select = parse(text)
        assert isinstance(select, Select)
        query = bind(select, schema)
        cap = settings.group_bytes_max
        granted = negotiate(query, SYNOPSIS_BYTES, group_bytes_max=cap)
        query_state = QueryState(
            name,
            query,
            plan(query, granted.sizes),
            part_bytes_max=group_bytes(granted.facts, cap),
        )
        stream.queries[name] = StandingQuery(
            query_state, from_position=0, granted=granted.facts, answer_exactly=lambda *_: None
        )
    return stream


def feed(stream: Stream, given: Sequence[pa.RecordBatch], *, answer: bool) -> None:
    """What the apply thread does with each batch; `answer`: also with each window that closes."""
    at = 0
    for number, batch in enumerate(given):
        rows = batch.num_rows
        positions = Positions(stream.schema.seed, at)
        frame = Frame(batch, stream.schema.time_column, positions=positions)
        stream.sample.update(at, frame)
        stream.apply(Batch(1, "", 0, number, at, rows, START_US), frame)
        for standing_query in stream.queries.values():
            assert not standing_query.failed
            standing_query.state.close(stream.watermark_us)
            if answer:
                standing_query.windows_closed(stream.facts())
        at += rows


def kernels(given: Sequence[pa.RecordBatch]) -> None:
    """The same summaries at their usual sizes, without engine, panes, basics and sample.

    A second's tuples go into one of each, as they do in the panes of `totals` and `groups`.
    """
    summaries: tuple[Any, ...] = ()
    for number, batch in enumerate(given):
        if number % 16 == 0:
            summaries = (
                GroupedMoments(1, integer=False), GroupedDistinct(1), GroupedLogBuckets(1),
                GroupedFrequent(1, 1024), GroupTable(1024), GroupedMoments(1024, integer=False),
            )  # fmt: skip
        moments, distinct, buckets, frequent, table, by_group = summaries
        key, value = (batch.column(at).to_numpy() for at in (1, 2))
        h1, h2 = murmur_int64(key)
        moments.update(None, value)
        distinct.update(None, h1, h2)
        buckets.update(None, value)
        frequent.update(None, h1, key)
        by_group.update(table.assign(murmur_int64(key % 1000)[0])[0], value)


def run() -> Report:
    """The whole apply path, parts of it, and engines that do the same exactly."""
    compile_kernels()
    keep_big_blocks()
    with keeping_what_is_loaded():
        rows = _rows(list(batches(TUPLES)))
    base = float(rows[0][1])
    return Report(
        claim="Aim: 40 million tuples per CPU second through samples, frames and panes, one core.",
        columns=["what", "M tuples/s", "eight aggregates over this"],
        rows=[[*row, f"{base / float(row[1]):.2f}×"] for row in rows],
        notes=[
            (
                f"{TUPLES:,} tuples in batches of {BATCH_ROWS:,} into empty panes; CPU time of one "
                f"thread, the fastest of {PASSES} rounds through all (rivals: of 3 passes)."
            ),
            (
                f"A server reads batches that wait as one, up to {ROWS_MAX:,} tuples: the third "
                "row is what it does under load, the first what it does while it keeps up."
            ),
            (
                "The C heap keeps what is freed and loaded modules are not swept for garbage, as "
                "the server sets it up; for the rivals, too."
            ),
            (
                "The sample is uniform, by weight of value and by hash of key, as registration "
                "makes it for these queries."
            ),
            (
                "polars and DuckDB run on one thread over the same arrays in memory, at once, the "
                "same aggregates per pane: distinct, quantile and counts per key exactly."
            ),
        ],
    )


def _rows(given: Sequence[pa.RecordBatch]) -> list[list[str]]:
    """What ran, and its rate."""
    waiting = [_joined(given[at : at + AT_ONCE]) for at in range(0, len(given), AT_ONCE)]
    ours: dict[str, Callable[[], float]] = {
        "eight aggregates and the samples": lambda: _seconds(given, QUERIES),
        "the same, and all windows that close are answered": lambda: _seconds(
            given, QUERIES, answer=True
        ),
        f"the eight, {AT_ONCE} batches that wait read as one": lambda: _seconds(waiting, QUERIES),
    }
    for name, text in QUERIES.items():
        ours[f"only {name}"] = partial(_seconds, given, {name: text})
    ours["only the sample (no query)"] = lambda: _seconds(given, {})
    ours["the kernels alone, without engine"] = lambda: _once(lambda: kernels(given))
    rounds = [[work() for work in ours.values()] for _ in range(PASSES)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    rates = {name: TUPLES / least / 1e6 for name, least in zip(ours, best, strict=True)}
    rates |= {"polars, exact": _polars(given), "DuckDB, exact": _duckdb(given)}
    return [[name, f"{rate:.1f}"] for name, rate in rates.items()]


def _joined(waiting: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]


def _seconds(
    given: Sequence[pa.RecordBatch], queries: dict[str, str], *, answer: bool = False
) -> float:
    """CPU seconds that a new stream takes for all batches."""
    stream = stream_of(queries)
    return _once(lambda: feed(stream, given, answer=answer))


def _once(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _rate(work: Callable[[], object]) -> float:
    """Millions of tuples per CPU second, the best of three passes."""
    return TUPLES / min(_once(work) for _ in range(3)) / 1e6


def _polars(given: Sequence[pa.RecordBatch]) -> float:
    frame = pl.from_arrow(pa.Table.from_batches(given))
    assert isinstance(frame, pl.DataFrame)
    value, key = pl.col("value"), pl.col("key")

    def work() -> None:
        second = frame.with_columns(pane=pl.col("ts").dt.truncate("1s"))
        second.group_by("pane").agg(
            pl.len(),
            value.sum().alias("total"),
            value.mean().alias("mean"),
            value.max().alias("top"),
            key.n_unique(),
        )
        second.group_by("pane", (key % 1000).alias("shard")).agg(value.sum())
        five = frame.with_columns(pane=pl.col("ts").dt.truncate("5s"))
        five.group_by("pane").agg(value.quantile(0.99, "higher"))
        counts = five.group_by("pane", "key").len()
        counts.group_by("pane").agg(pl.struct("len", "key").top_k(20))

    return _rate(work)


_PER_SECOND = "time_bucket(INTERVAL 1 SECOND, ts) pane"
_PER_FIVE = "time_bucket(INTERVAL 5 SECOND, ts) pane"
_DUCKDB = (
    f"SELECT {_PER_SECOND}, count(*), sum(value), avg(value), max(value), count(DISTINCT key) "  # noqa: ISC003
    + "FROM trades GROUP BY pane",
    f"SELECT {_PER_SECOND}, key % 1000 shard, sum(value) FROM trades GROUP BY pane, shard",
    f"SELECT {_PER_FIVE}, quantile_disc(value, 0.99) FROM trades GROUP BY pane",
    f"SELECT pane, arg_max(key, n, 20) FROM (SELECT {_PER_FIVE}, key, count(*) n FROM trades "  # noqa: ISC003
    + "GROUP BY pane, key) GROUP BY pane",
)


def _duckdb(given: Sequence[pa.RecordBatch]) -> float:
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("arrow", pa.Table.from_batches(given))
        database.execute("CREATE TABLE trades AS SELECT * FROM arrow")

        def work() -> None:
            for text in _DUCKDB:
                database.execute(text).fetchall()

        return _rate(work)
