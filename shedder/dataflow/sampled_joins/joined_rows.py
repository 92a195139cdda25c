"""Rows of one input of a join: hashes of their keys, and the numbers that aggregates read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.batch_rows import take_values
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.key_directory import canonical, hash_columns
from synopses.joins.key_tables import Floats, Words


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """Rows of an input without NULL keys, by event time.

    values: [rows, expressions]. labels: of the keys; None: they are not kept.
    """

    ts_us: Int64s
    born_us: Int64s
    hashes: Words
    values: Floats
    labels: pa.Array[Any] | None

    def divided(self, before_us: int) -> tuple[JoinedRows, JoinedRows]:
        """Return the rows before an event time, and the others."""
        cut = int(np.searchsorted(self.ts_us, before_us))
        return self.at(slice(cut)), self.at(slice(cut, None))

    @classmethod
    def of(
        cls,
        changes: ChangeBatch,
        keys: Sequence[Expression],
        values: Sequence[Expression],
        label: Expression | None,
    ) -> JoinedRows:
        """The rows of an input. label: of each row; None: none is kept."""
        assert (changes.weight == 1).all()  # Time windows over streams have no others.
        columns = [canonical(evaluate(key, changes.columns)) for key in keys]
        numbers = np.empty((len(changes), len(values)))
        for place, expression in enumerate(values):
            numbers[:, place] = _numbers(evaluate(expression, changes.columns))
        labels = None if label is None else canonical(evaluate(label, changes.columns))
        found = cls(changes.ts_us, changes.born_us, hash_columns(columns), numbers, labels)
        if any(key.null_count for key in columns):
            valid = np.logical_and.reduce([np.asarray(key.is_valid()) for key in columns])
            found = found.at(np.flatnonzero(valid))
        if (found.ts_us[1:] < found.ts_us[:-1]).any():
            found = found.at(np.argsort(found.ts_us, kind="stable"))
        return found

    @property
    def births_us(self) -> set[int]:
        """Return the instants at which rows are born."""
        found, row = set[int](), 0
        while row < len(self.born_us):
            found.add(int(self.born_us[row]))
            row = int(np.searchsorted(self.born_us, self.born_us[row], "right"))
        return found

    def at(self, of: slice | Int64s) -> JoinedRows:
        """Return some rows."""
        labels = self.labels
        if labels is not None:
            labels = labels[of] if isinstance(of, slice) else take_values(labels, of)
        return JoinedRows(
            self.ts_us[of], self.born_us[of], self.hashes[of], self.values[of], labels
        )


def _numbers(values: pa.Array[Any]) -> Any:
    """Return doubles, NaN for NULL and NaN; values that are no numbers are 0."""
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not is_number:
        return np.where(np.asarray(values.is_valid()), 0.0, np.nan)
    numbers: Any = values.cast(pa.float64(), safe=False)
    return np.asarray(pc.fill_null(numbers, np.nan))
