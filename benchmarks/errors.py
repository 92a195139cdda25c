"""Errors at equal bytes: our summaries beside DataSketches, DuckDB and ClickHouse.

Every contender summarises the same streams; bytes are those of its serialised state (DuckDB does
not show its own). Sizes are chosen near 4 KiB where a contender has a size. The best one in a block
is printed in bold, ours or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import chdb
import datasketches as ds
import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.measure import Report
from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64, position_keys, uniforms
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, WeightedBottomK
from synopses.theta.theta_sketch import GroupedTheta

TRIALS = 40
ROWS = 200_000
TOP = 20
_NO_BYTES = -1

Doubles = NDArray[np.float64]
Answer = tuple[Any, int]  # What was answered, and bytes of the serialised state.


@dataclass(frozen=True, slots=True)
class Contender:
    """name; ask: a stream's answer and the bytes behind it."""

    name: str
    ask: Callable[[NDArray[Any]], Answer]


@dataclass(frozen=True, slots=True)
class QuestionBlock:
    """A question: streams by trial, the error of an answer to one, and the contenders."""

    question: str
    error: str
    draw: Callable[[np.random.Generator], NDArray[Any]]
    error_of: Callable[[Any, NDArray[Any]], float]
    contenders: Sequence[Contender]

    def rows(self) -> list[tuple[str, ...]]:
        """One row per contender; the smallest typical error in bold."""
        errors = np.zeros((len(self.contenders), TRIALS))
        held = np.zeros_like(errors)
        for trial in range(TRIALS):
            stream = self.draw(np.random.default_rng([7, trial]))
            for place, contender in enumerate(self.contenders):
                answer, size = contender.ask(stream)
                errors[place, trial] = self.error_of(answer, stream)
                held[place, trial] = size
        typical = np.sqrt((errors**2).mean(axis=1))
        found = list[tuple[str, ...]]()
        for place, contender in enumerate(self.contenders):
            size = held[place].mean()
            digits = f"{typical[place]:.3%}"
            found.append(
                (
                    self.question if place == 0 else "",
                    contender.name,
                    "not shown" if size < 0 else f"{size:,.0f}",
                    f"**{digits}**" if typical[place] == typical.min() else digits,
                    f"{np.abs(errors[place]).max():.3%}",
                )
            )
        return found


def _chdb(expression: str, stream: NDArray[Any]) -> dict[str, Any]:
    given = pa.table({"x": pa.array(stream)})  # noqa: F841 - chDB finds it by its name
    found: pa.Table = chdb.query(f"SELECT {expression} FROM Python(given)", "ArrowTable")
    (row,) = found.to_pylist()
    return row


def clickhouse(name: str, question: str, state: str) -> Contender:
    """A function of ClickHouse and its -State form."""

    def ask(stream: NDArray[Any]) -> Answer:
        found = _chdb(f"{question} AS answer, length(hex({state})) / 2 AS size", stream)
        return found["answer"], int(found["size"])

    return Contender(f"ClickHouse {name}", ask)


def duck(expression: str) -> Contender:
    """A function of DuckDB."""

    def ask(stream: NDArray[Any]) -> Answer:
        given = pa.table({"x": pa.array(stream)})  # noqa: F841 - DuckDB finds it by its name
        return duckdb.execute(f"SELECT {expression} FROM given").fetchall()[0][0], _NO_BYTES

    return Contender(f"DuckDB {expression.split('(', maxsplit=1)[0]}", ask)


def library(name: str, make: Callable[[], Any], answer: Callable[[Any], Any]) -> Contender:
    """A sketch of DataSketches, fed item by item unless it takes arrays."""

    def ask(stream: NDArray[Any]) -> Answer:
        sketch = make()
        for value in stream.tolist():
            sketch.update(value)
        return answer(sketch), len(_serialized(sketch))

    return Contender(f"DataSketches {name}", ask)


def _serialized(sketch: Any) -> bytes:
    match sketch:
        case ds.hll_sketch():
            return bytes(sketch.serialize_compact())
        case ds.update_theta_sketch():
            return bytes(sketch.compact().serialize())
        case ds.frequent_items_sketch():
            return bytes(sketch.serialize(ds.PyLongsSerDe()))
        case _:
            return bytes(sketch.serialize())


# --- distinct --------------------------------------------------------------------------------


def _our_hll(stream: NDArray[Any]) -> Answer:
    summary = GroupedDistinct(1, 12)
    for _ in range(2):  # So that the number of tuples does not tell the answer.
        summary.update(None, *murmur_int64(stream))
    return int(summary.distinct(0.95).value[0]), len(summary.to_bytes())


def _our_theta(stream: NDArray[Any]) -> Answer:
    summary = GroupedTheta(1, 9)
    summary.update(None, murmur_int64(stream)[0])
    return int(summary.distinct(0.95).value[0]), len(summary.to_bytes())


DISTINCT = QuestionBlock(
    "distinct of 200,000",
    "relative",
    lambda rng: rng.integers(0, 2**62, ROWS),
    lambda answer, stream: answer / len(stream) - 1,
    [
        Contender("HLL, 2^12 registers", _our_hll),
        Contender("theta, 2^9 hashes", _our_theta),
        library("HLL_8, lg_k 12", lambda: ds.hll_sketch(12, ds.HLL_8), lambda s: s.get_estimate()),
        library("HLL_4, lg_k 13", lambda: ds.hll_sketch(13, ds.HLL_4), lambda s: s.get_estimate()),
        library("CPC, lg_k 12", lambda: ds.cpc_sketch(12), lambda s: s.get_estimate()),
        library("theta, lg_k 9", lambda: ds.update_theta_sketch(9), lambda s: s.get_estimate()),
        clickhouse("uniqHLL12", "uniqHLL12(x)", "uniqHLL12State(x)"),
        clickhouse("uniqCombined(12)", "uniqCombined(12)(x)", "uniqCombinedState(12)(x)"),
        clickhouse("uniq", "uniq(x)", "uniqState(x)"),
        duck("approx_count_distinct(x)"),
    ],
)


# --- quantiles -------------------------------------------------------------------------------


def _log_buckets(bits: int) -> Callable[[NDArray[Any]], Answer]:
    def ask(stream: NDArray[Any]) -> Answer:
        summary = GroupedLogBuckets(1).resize(bits)
        summary.update(None, stream)
        return summary.quantile(0.99).value[0], len(summary.to_bytes())

    return ask


def _by_rank(make: Callable[[], GroupedKll | GroupedReq]) -> Callable[[NDArray[Any]], Answer]:
    def ask(stream: NDArray[Any]) -> Answer:
        summary = make()
        summary.update(None, stream)
        return summary.quantile(0.99, 0.95).value[0], len(summary.to_bytes())

    return ask


def _arrays(name: str, make: Callable[[], Any]) -> Contender:
    def ask(stream: NDArray[Any]) -> Answer:
        sketch = make()
        sketch.update(stream)
        return sketch.get_quantile(0.99), len(_serialized(sketch))

    return Contender(f"DataSketches {name}", ask)


def _quantile_contenders() -> list[Contender]:
    high = "99"
    return [
        Contender("log buckets, 7 bits", _log_buckets(7)),
        Contender("log buckets, 6 bits", _log_buckets(6)),
        Contender("log buckets, 3 bits", _log_buckets(3)),
        Contender("KLL, k = 200", _by_rank(lambda: GroupedKll(1, 200))),
        Contender("REQ, k = 12", _by_rank(lambda: GroupedReq(1, 12))),
        _arrays("KLL, k = 200", lambda: ds.kll_doubles_sketch(200)),
        _arrays("REQ, k = 12", lambda: ds.req_floats_sketch(12)),
        _arrays("quantiles, k = 64", lambda: ds.quantiles_doubles_sketch(64)),
        library(
            "t-digest, k = 100", lambda: ds.tdigest_double(100), lambda s: s.get_quantile(0.99)
        ),
        *(
            clickhouse(name, f"{name}({start}0.{high})(x)", f"{name}State({start}0.{high})(x)")
            for name, start in (("quantileTDigest", ""), ("quantileDD", "0.01, "), ("quantile", ""))
        ),
        duck("approx_quantile(x, 0.99)"),
    ]


def _p99(stream: Doubles) -> float:
    return float(np.sort(stream)[int(np.ceil(0.99 * len(stream))) - 1])


def _lognormal(rng: np.random.Generator) -> Doubles:
    return rng.lognormal(0.0, 2.0, ROWS)


VALUES = QuestionBlock(
    "p99 of lognormal(0, 2)",
    "relative to the value",
    _lognormal,
    lambda answer, stream: answer / _p99(stream) - 1,
    _quantile_contenders(),
)
RANKS = QuestionBlock(
    "the same, by rank",
    "share of the tuples",
    _lognormal,
    lambda answer, stream: float((stream <= answer).mean()) - 0.99,
    _quantile_contenders(),
)


# --- counts of items -------------------------------------------------------------------------


def _zipf(rng: np.random.Generator) -> NDArray[np.int64]:
    return np.minimum(rng.zipf(1.1, ROWS), 10**9)


def _largest_error(answer: dict[int, int], stream: NDArray[Any]) -> float:
    """Of the counts of the true top; an item that is not listed was counted 0."""
    seen, counts = np.unique(stream, return_counts=True)
    top = np.argsort(-counts, kind="stable")[:TOP]
    off = [
        answer.get(item, 0) - count
        for item, count in zip(seen[top].tolist(), counts[top].tolist(), strict=True)
    ]
    return max(map(abs, off)) / len(stream)


def _our_top(stream: NDArray[Any]) -> Answer:
    summary = GroupedFrequent(1, 256)
    summary.update(None, murmur_int64(stream)[0], stream)
    return {t.value: t.count for t in summary.top(TOP)[0]}, len(summary.to_bytes())


def _their_top(sketch: Any) -> dict[int, int]:
    items = sketch.get_frequent_items(ds.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    return {item[0]: item[1] for item in items[:TOP]}


def _sketched(kind: Any) -> Callable[[NDArray[Any]], Answer]:
    def ask(stream: NDArray[Any]) -> Answer:
        summary, keys = kind(1, lg_width=7), murmur_int64(stream)[0]
        summary.update(None, keys)
        seen, first = np.unique(stream, return_index=True)
        counts = summary.count(keys[first], 0.95).value
        return dict(zip(seen.tolist(), counts.tolist(), strict=True)), len(summary.to_bytes())

    return ask


def _their_count_min(stream: NDArray[Any]) -> Answer:
    sketch = ds.count_min_sketch(5, 128)
    for value in stream.tolist():
        sketch.update(value)
    seen = np.unique(stream).tolist()
    counts = {value: sketch.get_estimate(value) for value in seen}
    return counts, len(sketch.serialize())


def _their_topk(stream: NDArray[Any]) -> Answer:
    call = f"({TOP}, 10, 'counts')(x)"
    found = _chdb(f"topK{call} AS answer, length(hex(topKState{call})) / 2 AS size", stream)
    items = [tuple(row.values()) for row in found["answer"]]
    return {item[0]: item[1] for item in items}, int(found["size"])


FREQUENT = QuestionBlock(
    "counts of the top 20 of zipf 1.1",
    "largest, of all tuples",
    _zipf,
    _largest_error,
    [
        Contender("frequent items, 256 entries", _our_top),
        Contender("Count-Min, 5 x 128", _sketched(GroupedCountMin)),
        Contender("CountSketch, 5 x 128", _sketched(GroupedCountSketch)),
        library("frequent items, 512", lambda: ds.frequent_items_sketch(9), _their_top),
        Contender("DataSketches Count-Min, 5 x 128", _their_count_min),
        Contender("ClickHouse topK, 200 counters", _their_topk),
    ],
)


# --- sums behind a filter --------------------------------------------------------------------

_PASS = 10  # Every tenth row passes the filter.


def _keys(stream: Doubles) -> NDArray[np.uint64]:
    """Random keys of the rows, other ones for every stream."""
    return position_keys(int(stream[:1].view(np.int64)[0]) % 2**31, 0, ROWS)


def _weighted(stream: Doubles) -> Answer:
    sample, held = WeightedBottomK(250), np.zeros(0, np.int64)
    for change in (sample.update(stream, uniforms(_keys(stream))), sample.settle()):
        held = np.concatenate([held if change.old is None else held[change.old], change.new])
    weights = np.maximum(sample.weights, sample.tau)
    return weights[held % _PASS == 0].sum(), len(sample.to_bytes())


def _uniform(stream: Doubles) -> Answer:
    sample = BottomK(500)
    kept = sample.update(_keys(stream)).new[sample.chosen()]
    sample.settle()
    passing = kept[kept % _PASS == 0]
    return stream[passing].sum() * ROWS / len(kept), len(sample.to_bytes())


def _var_opt(stream: Doubles) -> Answer:
    sketch = ds.var_opt_sketch(250)
    for position, value in enumerate(stream.tolist()):
        sketch.update(position, value)
    found = sketch.estimate_subset_sum(lambda position: position % _PASS == 0)
    return found["estimate"], len(sketch.serialize(ds.PyLongsSerDe()))


def _reservoir(stream: Doubles) -> Answer:
    given = pa.table({"x": pa.array(stream), "p": pa.array(np.arange(ROWS))})  # noqa: F841 - by its name
    sql = f"SELECT sum(x) FILTER (p % {_PASS} = 0) FROM (FROM given USING SAMPLE 500 ROWS)"
    return (duckdb.execute(sql).fetchall()[0][0] or 0.0) * ROWS / 500, _NO_BYTES


SUMS = QuestionBlock(
    "a sum of lognormal(0, 2) behind a filter of 10 %",
    "relative",
    _lognormal,
    lambda answer, stream: float(answer) / stream[::_PASS].sum() - 1,
    [
        Contender("weighted sample, k = 250", _weighted),
        Contender("uniform sample, k = 500", _uniform),
        Contender("DataSketches VarOpt, k = 250", _var_opt),
        Contender("DuckDB SAMPLE 500 ROWS", _reservoir),
    ],
)


_NOTES = (
    f"{ROWS:,} tuples, {TRIALS} streams. Typical: root of the mean square; largest: worst stream.",
    "Bytes are those of the serialised state; of samples, those of their keys.",
    "DataSketches' HLL and CPC follow one stream with estimators (HIP) that HLL loses in a merge.",
    "By value KLL and t-digest promise nothing; log buckets 2^-(bits + 1), quantileDD 1 %.",
    "A counter of our frequent items also says how late it came: more bytes, narrower bounds.",
)


def run() -> Report:
    """Measure everything."""
    blocks = (DISTINCT, VALUES, RANKS, FREQUENT, SUMS)
    return Report(
        claim="The same streams into every summary, near 4 KiB where a size can be chosen; the "
        "best of each block is bold, ours or not. With answers only ours and DataSketches' give an "
        "interval, and topK an error.",
        columns=("question", "summary", "bytes", "typical error", "largest"),
        rows=[row for block in blocks for row in block.rows()],
        notes=_NOTES,
    )


if __name__ == "__main__":
    print(run().markdown())
