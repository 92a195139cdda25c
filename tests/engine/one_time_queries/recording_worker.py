"""An exact worker that keeps what its last query was asked over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.relation import ExactRelation
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.engine.engine import Engine
from shedder.engine.one_time_queries.row_queries import RowQueries


class RecordingWorker(ExactWorker):
    """An exact worker that keeps the relations of its last query."""

    requested: Sequence[ExactRelation] = ()

    def reading(self, sql: str, relations: Sequence[ExactRelation], *rest: Any, **more: Any) -> Any:
        """Run one SELECT."""
        self.requested = relations
        return super().reading(sql, relations, *rest, **more)


def relations_read(engine: Engine, sql: str, folder: Path) -> tuple[int, Sequence[ExactRelation]]:
    """Count the rows of a row query's answer, and return the relations that the worker had."""
    worker = RecordingWorker(folder / "exact")
    try:
        select = engine.parse(sql)
        assert isinstance(select, RelationalSelect)
        batches = RowQueries(engine.core, worker).batches(select, None)
        return sum(batch.num_rows for batch in batches), worker.requested
    finally:
        worker.close()


def sent_rows(relations: Sequence[ExactRelation]) -> int:
    """Count the rows that are sent to the worker's process."""
    return sum(batch.num_rows for relation in relations for batch in relation.rows())
