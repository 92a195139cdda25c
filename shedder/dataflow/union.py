"""Bag union: the changes of both inputs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.consolidation import without_pairs

PAIRS_ROWS_MIN = 64  # Changes; a search takes 0.4 ms at least, longer than it saves among fewer.


@dataclass(frozen=True, slots=True)
class UnionAll:
    """Operator of UNION ALL; columns are matched by place, names are the left's.

    negates_right: the right rows are taken away from the left ones, which contain them.
    pairs_rows_min: least number of changes in which pairs that undo each other are looked for.
    """

    negates_right: bool = False
    pairs_rows_min: int = PAIRS_ROWS_MIN

    @property
    def size_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def apply(self, as_of_us: int, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """The changes of both, in the order of event times.

        Rows that are taken away at the instant of their birth are left out. A join would look for
        each of them among all rows of its key.
        """
        if self.negates_right:
            right = right.negated()
        renamed = pa.RecordBatch.from_arrays(right.columns.columns, schema=left.columns.schema)
        both = ChangeBatch.concat([left, right.with_columns(renamed)])
        if self.negates_right and len(both) >= self.pairs_rows_min:
            both = without_pairs(both)
        ts = both.ts_us
        in_order = bool((ts[1:] >= ts[:-1]).all())
        return both if in_order else both.take(ts.argsort(kind="stable"))
