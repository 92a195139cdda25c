"""Parts of the archive beside the extreme rows of the live sample: narrower, and still true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.reductions.uniform import Uniform
from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, Select
from shedder.engine.engine import Engine
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.settings import Settings
from shedder.streams.batches import arrow_schema
from shedder.streams.extreme_rows import ExtremesView
from tests.archive.dealt import DealtRuns
from tests.engine.machines import ByHand
from tests.engine.scanning import scan_of
from tests.scale import scaled
from tests.truth import gate

ROWS, GROUPS, CONFIDENCE = 8_000, 5, 0.9
PER_END = 40
TRIALS = scaled(25, 500)
SCHEMA = StreamSchema(
    name="s",
    columns=(
        ColumnDefinition("ts", ColumnType.TIMESTAMP, False),
        ColumnDefinition("g", ColumnType.BIGINT, True),
        ColumnDefinition("x", ColumnType.DOUBLE, True),
    ),
    time_column="ts",
    lateness_us=0,
    retain_us=None,
    layout=Plain(),
    seed=25,
)
SHAPES = {
    "lognormal": lambda rng: rng.lognormal(0.0, 2.0, ROWS),
    "spikes": lambda rng: np.where(rng.random(ROWS) < 0.001, 1e5, rng.uniform(9.0, 11.0, ROWS)),
    "both tails": lambda rng: rng.standard_t(2, ROWS),
    "whole numbers": lambda rng: np.minimum(rng.zipf(1.5, ROWS), 1_000) * 1.0,
}
QUERY = "g, SUM(x) AS s, AVG(x) AS a, VAR(x) AS v FROM s GROUP BY g"
COLUMNS = ("s", "a", "v")


def rows_of(values: np.ndarray, ids: np.ndarray) -> pa.RecordBatch:
    times = pa.array(np.arange(len(values)), pa.timestamp("us"))
    return pa.record_batch([times, ids, values], schema=arrow_schema(SCHEMA))


def extremes_of(data: pa.RecordBatch) -> ExtremesView:
    """The rows beyond the ends of x, found by sorting."""
    values = data["x"].to_numpy()
    low, high = np.sort(values)[[PER_END, -PER_END - 1]]
    beyond = np.flatnonzero((values < low) | (values > high))
    return ExtremesView(data.take(pa.array(beyond)), {"x": (float(low), float(high))})


def answer_of(dealt: DealtRuns, extremes: ExtremesView | None, seed: int) -> Answer:
    select = parse(f"SELECT {QUERY} CONFIDENCE {100 * CONFIDENCE:g} PERCENT")
    assert isinstance(select, Select)
    query = bind(select, SCHEMA)
    scan = scan_of(query, dealt, Uniform(0.875), seed=seed, extremes=extremes)
    look = scan.read(None)
    assert look is not None
    return finish(query, look.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_beside_extreme_rows_hold_as_often_as_they_say(shape: str) -> None:
    rng = np.random.default_rng(len(shape))
    values, ids = SHAPES[shape](rng), rng.integers(0, GROUPS, ROWS)
    data = rows_of(values, ids)
    dealt = DealtRuns(SCHEMA, data, (4_000, 3_700), 16, 1)  # The rest is a tail.
    extremes = extremes_of(data)
    truth = {
        g: {"s": own.sum(), "a": own.mean(), "v": own.var(ddof=1)}
        for g, own in ((g, values[ids == g]) for g in range(GROUPS))
    }
    held = dict.fromkeys(COLUMNS, 0)
    tried = 0
    for seed in range(TRIALS):
        dealt.deal(seed)
        for row in answer_of(dealt, extremes, seed).rows():
            tried += 1
            for name in COLUMNS:
                true = truth[row["g"]][name]
                slack = 1e-9 * abs(true)
                held[name] += row[f"{name}_low"] - slack <= true <= row[f"{name}_high"] + slack
    for name in COLUMNS:
        assert held[name] >= gate(tried, CONFIDENCE), (name, held[name], tried)


@pytest.mark.parametrize("name", COLUMNS)
def test_extreme_rows_narrow_intervals_of_a_long_tail(name: str) -> None:
    rng = np.random.default_rng(5)
    data = rows_of(rng.lognormal(0.0, 2.0, ROWS), rng.integers(0, GROUPS, ROWS))
    dealt = DealtRuns(SCHEMA, data, (4_000, 3_700), 16, 1)
    without, beside = (
        np.median([row[f"{name}_high"] - row[f"{name}_low"] for row in answer.rows()])
        for answer in (answer_of(dealt, None, 1), answer_of(dealt, extremes_of(data), 1))
    )
    assert beside < without / 2


def widths(db: Engine) -> float:
    """The median width of sums by group, of an eighth of the archive."""
    answer = db.execute("SELECT g, SUM(x) AS s FROM s GROUP BY g REDUCE BY uniform(0.875)")
    assert answer.sources[0] == "archive sample"
    return float(np.median([row["s_high"] - row["s_low"] for row in answer.rows()]))


@pytest.mark.slow
def test_a_part_of_the_archive_stands_beside_extreme_rows_only_of_the_same_tuples(
    tmp_path: Path,
) -> None:
    """Deleted tuples are among the extreme rows; a large tail is a stratum of its own."""
    rng = np.random.default_rng(6)
    values = np.where(rng.random(ROWS) < 0.002, 1e5, rng.uniform(9.0, 11.0, ROWS))
    values[0], ids = -7.0, rng.integers(0, GROUPS, ROWS)
    table = pa.Table.from_batches([rows_of(values, ids)])
    settings = Settings(sample_rows=3_000, audit="off", overload="off")
    with Engine.open(tmp_path, settings, machine=ByHand(lambda: 10**10)) as db:
        db.execute(
            "CREATE STREAM s (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE) TIMESTAMP BY ts "
            "ARCHIVE hybrid(blocks=16, block_rows=100)"
        )
        db.push("s", table.slice(0, 6_000))
        db.seal("s")
        sealed = widths(db)
        db.push("s", table.slice(6_000))
        beside_tail = widths(db)
        db.seal("s")
        all_sealed = widths(db)
        db.execute("DELETE FROM s WHERE x < 0")
        deleted = widths(db)
    assert max(sealed, all_sealed) < 1e5 < min(beside_tail, deleted)
