"""Selection: the changes of rows for which a condition is true."""

from __future__ import annotations

from dataclasses import dataclass

from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Expression
from shedder.dataflow.changes import ChangeBatch


@dataclass(frozen=True, slots=True)
class WhereFilter:
    """Operator of WHERE; FALSE and NULL leave a row out."""

    condition: Expression

    @property
    def size_bytes(self) -> int:
        """Nothing is held."""
        return 0

    def apply(self, as_of_us: int, changes: ChangeBatch) -> ChangeBatch:  # noqa: ARG002
        """The changes for which the condition is true."""
        if not len(changes):
            return changes
        return changes.where(true_rows(evaluate(self.condition, changes.columns)))
