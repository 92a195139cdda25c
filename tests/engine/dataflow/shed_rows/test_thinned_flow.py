"""Thinned flows in bytes that do not suffice: coverage of completeness over fresh seeds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.binding.relational_binding import bind_relational
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.dataflow.flow import RowFlow
from shedder.engine.dataflow.rows_bound import RowsBound, has_bound
from shedder.engine.dataflow.standing_plan import standing_plan
from shedder.engine.dataflow.thinned_flow import ThinnedFlow
from shedder.engine.dataflow.thinning_levels import KeyThinning
from synopses.model.estimate import Bound
from tests.cql.relations import stream
from tests.scale import scaled
from tests.truth import gate

pytestmark = pytest.mark.slow

SECOND = 1_000_000
SCHEMAS = {name: stream(name, k=ColumnType.BIGINT, v=ColumnType.BIGINT) for name in "ab"}
TRIALS = scaled(12, 1_000)
STEPS = 4
BUCKET_BYTES = 1 << 20  # Of the counts, at most,
COUNTS_BYTES = 64 << 10  # ... and of those of one pane of each stream.


class _Levels:
    """Takes every level."""

    is_new = False

    def put(self, thinning: KeyThinning) -> bool:
        return bool(thinning.levels)


def thinned(text: str, bytes_max: int, seed: int) -> ThinnedFlow:
    select = parse(f"{text} ON OVERLOAD SHED")
    assert isinstance(select, RelationalSelect)
    plan = standing_plan(select, bind_relational(select, SCHEMAS))
    assert plan.keys is not None

    def made() -> RowFlow:
        return RowFlow(plan, bytes_max=bytes_max, tables={}, shares=False)

    levels = KeyThinning(seed)
    whole = plan.query.plan
    bound = RowsBound(whole, seed, BUCKET_BYTES) if has_bound(whole) else None
    return ThinnedFlow(
        made, plan.keys, levels, _Levels(), bound=bound, bytes_max=bytes_max, span_us=None
    )


def run(flow: ThinnedFlow, tuples: dict[str, np.ndarray], bytes_max: int) -> None:
    """Push the keys of each stream in some steps. A tuple's value is its number."""
    for step in range(STEPS):
        for alias in flow.sources:
            keys = tuples[alias]
            rows = np.array_split(np.arange(len(keys)), STEPS)[step]
            columns = {"ts": pa.array(rows, pa.timestamp("us")), "k": keys[rows], "v": rows}
            flow.push(alias, pa.RecordBatch.from_pydict(columns), rows)
        end_us = (step + 1) * max(map(len, tuples.values())) // STEPS
        flow.advance(dict.fromkeys(flow.sources, end_us))
        if flow.size_bytes > bytes_max:
            assert flow.relieve(flow.size_bytes - bytes_max)
    flow.advance(dict.fromkeys(flow.sources, SECOND))


KINDS = {
    "distinct": "SELECT DISTINCT k FROM a [RANGE 10 SECONDS]",
    "except": "SELECT k FROM a [RANGE 10 SECONDS] EXCEPT SELECT k FROM b [RANGE 10 SECONDS]",
    "partitions": "SELECT k, v FROM a [PARTITION BY k ROWS 2]",
    "not exists": "SELECT k, v FROM a [RANGE 10 SECONDS] "
    "WHERE NOT EXISTS (SELECT * FROM b [RANGE 10 SECONDS] WHERE b.k = a.k)",
    "join": "SELECT a.k, b.v FROM a [RANGE 10 SECONDS] JOIN b [RANGE 10 SECONDS] ON a.k = b.k",
}


def bytes_of_few(kind: str) -> int:
    """Return the bytes of a flow with some tuples in each stratum, so that its arrays are made."""
    flow = thinned(KINDS[kind], 1 << 30, 0)
    run(flow, dict.fromkeys("ab", np.arange(64) % 32), 1 << 30)
    return flow.size_bytes


@pytest.mark.timeout(scaled(60, 1_800))
@pytest.mark.parametrize(
    ("kind", "keys"),
    scaled(
        [("except", 3_000), ("join", 3_000)],
        [(kind, keys) for kind in KINDS for keys in (40, 3_000)],
    ),
)
def test_counts_of_keys_and_rows_are_in_their_intervals(kind, keys):
    bytes_max = bytes_of_few(kind) + 20 * keys + COUNTS_BYTES
    rng = np.random.default_rng(keys)
    held, highest, wide = np.zeros(2, np.int64), 0, list[float]()
    for _ in range(TRIALS):
        tuples = {name: rng.integers(0, keys, 2 * keys) for name in "ab"}
        flow = thinned(KINDS[kind], bytes_max, int(rng.integers(1 << 62)))
        run(flow, tuples, bytes_max)
        said = flow.completeness(flow.relation())
        ours, theirs = (np.bincount(tuples[name], minlength=keys) for name in "ab")
        of_key = {
            "distinct": ours > 0,
            "except": (ours > 0) & (theirs == 0),
            "partitions": np.minimum(ours, 2),
            "not exists": np.where(theirs == 0, ours, 0),
            "join": ours * theirs,
        }[kind]
        held += said.keys.holds(np.count_nonzero(of_key)), said.rows.holds(int(of_key.sum()))
        highest = max(highest, flow.thinning.level)
        assert said.rows.bound is not Bound.NONE
        ideal = 1.96 * np.sqrt((1.0 / said.share - 1.0) * np.square(of_key).sum())
        wide += [said.rows.half_width / ideal] if ideal else []
    assert held.min() >= gate(TRIALS, 0.95)
    assert highest > 0 or keys < 3_000
    if keys >= 3_000:
        assert np.median(wide) < 12.0
