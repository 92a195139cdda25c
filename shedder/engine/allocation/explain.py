"""EXPLAIN ALLOCATION: bytes of each query, the errors they give, and the prices of more bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from allocator.allocate import Allocation, describe
from allocator.demands import Budget
from allocator.prices import Prices
from allocator.quotes import Quotes, quote
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.allocation.cpu_prices import cpu_prices
from shedder.engine.allocation.demand_cache import DemandCache
from shedder.engine.allocation.problem import Problem
from shedder.engine.allocation.query_demands import Row
from shedder.queries.answers.allocation_text import ALLOCATION, LAYOUT

_TEXTS = ("query", "synopsis", "answers", "thinning")
_NUMBERS = ("size_bytes", "needed_bytes")
_COLUMNS = (
    "query",
    "synopsis",
    "answers",
    "size_bytes",
    "thinning",
    "weight",
    "target",
    "predicted_error",
    "expected_error",
    "predicted_fn",
    "predicted_fp",
    "measured_error",
    "factor",
    "skipping_factor",
    "needed_bytes",
    "saved_per_kib",
    "saved_per_ns",
)


def _type_of(column: str) -> pa.DataType:
    if column in _TEXTS:
        return pa.string()
    return pa.int64() if column in _NUMBERS else pa.float64()


SCHEMA = pa.schema(
    [(column, _type_of(column)) for column in _COLUMNS], metadata={LAYOUT: ALLOCATION}
)


def allocation_table(
    found: Problem,
    budget_bytes: int,
    last: Allocation | None,
    *,
    group_bytes_max: int,
    drawings: DemandCache | None = None,
) -> pa.Table:
    """A row for each synopsis, for what each query takes beside, and for what is free.

    size_bytes of all rows sum to the budget. target and all errors: in the unit
    of the synopsis (relative, by rank, share of tuples), of its most demanding reader.
    predicted_error: half width at the query's confidence. expected_error: the same as measured
    answers correct it; the allocator plans with it. predicted_fn, predicted_fp: of row queries
    alone (`row_plans_table`). factor,
    skipping_factor: by which measurements correct the prediction of what its size and what skipped
    tuples cost. needed_bytes: of the target; null where there is
    none, or nothing reaches it. saved_per_kib, saved_per_ns: by how much the error falls per KiB,
    and per ns of each tuple.

    Args:
      found: of all standing queries, as they are.
      budget_bytes: of all synopses.
      last: the newest solution, for its prices.
      drawings: what was drawn for prices of CPU the last time.
    """
    per_byte, per_ns = (0.0, 0.0) if last is None else (last.per_byte, last.per_ns)
    present = describe(
        found.demands,
        Budget(max(0, budget_bytes)),
        found.demands.present,
        Prices(per_byte, per_ns, 0.0, None),
    )
    quotes = quote(found.demands, present)
    given = found.given(found.demands.present)
    of_cpu = cpu_prices(found.requests, given, group_bytes_max=group_bytes_max, drawings=drawings)
    rows = list(_rows(found, present, quotes, of_cpu))
    taken = sum(row["size_bytes"] for row in rows)
    rows.append({"synopsis": "free", "size_bytes": budget_bytes - taken})
    return pa.Table.from_pylist(rows, SCHEMA)


def _rows(
    found: Problem, present: Allocation, quotes: Quotes, of_cpu: NDArray[np.float64]
) -> Iterator[dict[str, Any]]:
    readers: dict[int, list[int]] = {}
    for reader, synopsis in enumerate(found.demands.readers.synopsis.tolist()):
        readers.setdefault(synopsis, []).append(reader)
    rows: dict[int, list[int]] = {}
    for at, row in enumerate(found.rows):
        rows.setdefault(row.request, []).append(at)
    for number, request in enumerate(found.requests):
        for at in rows.get(number, []):
            yield {
                "query": request.name,
                "weight": request.weight if request.active else 0.0,
                **_synopsis(found, at, present, readers.get(at, []), quotes, of_cpu),
            }
        yield {
            "query": request.name,
            "synopsis": "panes as such",
            "size_bytes": int(found.beside_bytes[number]),
        }


def _synopsis(
    found: Problem,
    at: int,
    present: Allocation,
    readers: list[int],
    quotes: Quotes,
    of_cpu: NDArray[np.float64],
) -> dict[str, Any]:
    row, request = found.rows[at], found.requests[found.rows[at].request]
    facts: dict[str, Any] = {
        "size_bytes": int(present.size_bytes[at]),
        "synopsis": _name(found, row),
    }
    if not row.parts:
        error = float(present.error[at])
        return facts | {"predicted_error": error, "expected_error": error}
    part = row.parts[0]
    facts["thinning"] = share_text(request.levels[part])
    facts["answers"] = ", ".join(
        text_of(aggregate) for r in readers if (aggregate := found.readers[r][1]) is not None
    )
    error = float(present.error[at])
    predicted = found.predicted(row, int(found.demands.present[at]), error)
    facts["predicted_error"] = found.predicted_now(row, predicted)
    facts["expected_error"] = found.expected_now(row, error)
    if request.measured and np.isfinite(request.measured[part]):
        facts["measured_error"] = request.measured[part]
    if request.factors and row.curve is not None:
        facts["factor"] = request.factors[part]
    if request.skipping:
        facts["skipping_factor"] = request.skipping[part]
    if readers:
        reader = min(readers, key=lambda r: float(found.demands.readers.target[r]))
        target = float(found.demands.readers.target[reader])
        facts["target"] = target if np.isfinite(target) else None
        needed = int(quotes.needed_bytes[reader])
        facts["needed_bytes"] = needed if needed >= 0 else None
        facts["saved_per_kib"] = float(quotes.saved_per_kib[reader])
        facts["saved_per_ns"] = float(of_cpu[reader])
    return facts


def _name(found: Problem, row: Row) -> str:
    part = found.requests[row.request].plan.parts[row.parts[0]] if row.parts else None
    if part is None:
        return "room for groups"
    return part.kind.value if row.curve is None else row.curve.sizes.words.format(part.size)
