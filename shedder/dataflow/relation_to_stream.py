"""Relation-to-stream operators: ISTREAM, DSTREAM, RSTREAM, and signed changes of a relation.

Source: Arasu, Babu, Widom 2006, The CQL continuous query language, section 5. At an instant e,
ISTREAM emits R(e) - R(before e) and DSTREAM R(before e) - R(e), as bags. A row that leaves while
an equal row enters is in neither. The event time of a tuple is e - 1 us, so that it is visible
as of e, and `SELECT ISTREAM(*) FROM s` gives each tuple its own event time.

The tuples come in an order that does not depend on steps, so that a reader can count them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shedder.cql.plans.logical_plan import StreamOperator
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.consolidation import ordered_by_value
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from shedder.dataflow.update_patterns import EdgeLabel, UpdatePattern


class RelationToStream:
    """Tuples by instant; weight 1, or -1 for a deletion among signed changes."""

    def __init__(
        self,
        operator: StreamOperator | None,
        schema: pa.Schema,
        label: EdgeLabel,
        *,
        by_value: bool,
    ) -> None:
        """An operator over an empty relation.

        Args:
          operator: ISTREAM or DSTREAM; None: insertions and deletions, by sign.
          schema: of the relation.
          label: of the input.
          by_value: rows of one instant are ordered by their values, as they come in any order.
        """
        assert operator is not StreamOperator.RSTREAM
        self._operator = operator
        self._by_value = by_value
        monotonic = label.pattern is UpdatePattern.MONOTONIC
        self._net = None if monotonic else Multiplicities(Multiplicity.BAG, schema)

    @property
    def operator(self) -> StreamOperator | None:
        """ISTREAM or DSTREAM; None: insertions and deletions, by sign."""
        return self._operator

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows that may leave."""
        return 0 if self._net is None else self._net.size_bytes

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:
        """The tuples of the instants up to `as_of_us`."""
        if self._net is not None:
            changes = self._net.apply(as_of_us, changes)
        if self._by_value:
            changes = ordered_by_value(changes)
        match self._operator:
            case StreamOperator.ISTREAM:
                return _tuples(changes.where(changes.weight > 0))
            case StreamOperator.DSTREAM:
                return _tuples(changes.where(changes.weight < 0).negated())
            case _:
                return _signed(changes)


def _tuples(changes: ChangeBatch) -> ChangeBatch:
    """Changes of positive weight as tuples of a stream, each copy by itself."""
    if bool((changes.weight > 1).any()):
        changes = changes.take(np.repeat(np.arange(len(changes)), changes.weight))
    return ChangeBatch.of_tuples(changes.columns, changes.born_us - 1)


def _signed(changes: ChangeBatch) -> ChangeBatch:
    """The same with weights -1 and 1."""
    copies = np.abs(changes.weight)
    signs = np.sign(changes.weight)
    if bool((copies > 1).any()):
        rows = np.repeat(np.arange(len(changes)), copies)
        changes, signs = changes.take(rows), signs[rows]
    tuples = ChangeBatch.of_tuples(changes.columns, changes.born_us - 1)
    return ChangeBatch(tuples.columns, tuples.ts_us, tuples.born_us, tuples.expires_us, signs)


def stream_batch(changes: ChangeBatch) -> pa.RecordBatch:
    """The tuples of a stream of rows as a batch, with columns `_ts` and `_sign` at the end."""
    times = pa.array(changes.ts_us, pa.int64()).cast(pa.timestamp("us"))
    signs = pa.array(changes.weight.astype(np.int8))
    batch = changes.columns
    return pa.RecordBatch.from_arrays(
        [*batch.columns, times, signs], names=[*batch.schema.names, "_ts", "_sign"]
    )
