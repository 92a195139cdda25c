"""What DROP LEAST compares: any number that its column may hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shedder.cql.statements.overload_policy import OnOverload, Policy
from shedder.engine.ingest.drop_policy import DropPolicy


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_whole_numbers_that_no_double_holds_are_let_in_as_others_are(share: float) -> None:
    """Nanoseconds are such: every batch with one was refused, with and without overload."""
    drops = DropPolicy(OnOverload(Policy.DROP_LEAST, "worth"), "ts", seed=1)
    drops.share = share
    worth = [-(2**63), 1, None, 2**53 + 1, 2**63 - 1]
    batch = pa.RecordBatch.from_pydict(
        {"ts": pa.array(range(5), pa.timestamp("us")), "worth": pa.array(worth, pa.int64())}
    )
    kept, gone = drops.divide(batch)
    assert kept.num_rows + (0 if gone is None else gone.rows) == 5
    assert 2**63 - 1 in kept.column("worth").to_pylist()
