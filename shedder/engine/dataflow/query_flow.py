"""Protocol of the operators of a standing row query, whether they keep all keys or a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.sharing.shared_source import StreamSource
from shedder.dataflow.sharing.source_graph import Agrees
from shedder.dataflow.step_parts import Parts
from shedder.engine.dataflow.flow import SharedPart
from shedder.engine.dataflow.thinning_levels import KeyThinning
from shedder.queries.answers.completeness import Completeness


class QueryFlow(Protocol):
    """Operators and sinks of a standing row query; implemented by `RowFlow` and `ThinnedFlow`.

    A step is made in parts and ended by `end`. Until then the relation is that of the step before.
    """

    @property
    def is_stream(self) -> bool:
        """Return whether the query is a stream; else it is a relation."""

    @property
    def sources(self) -> Mapping[str, StreamSource]:
        """The streams that are read, by alias."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all state behind the last step, with what it shares, and of waiting tuples."""

    @property
    def shared_parts(self) -> tuple[SharedPart, ...]:
        """Nodes and sinks that other queries may read, too, each once."""

    @property
    def is_shared(self) -> bool:
        """Return whether another query reads some of the state now."""

    @property
    def may_wait(self) -> bool:
        """Return whether a step may wait while other queries make theirs, in any order."""

    def queue_filters(self) -> bool:
        """Have a queue behind each filter of a stream, and return whether there is one."""

    def filter_ahead(self, watermarks: Mapping[str, int]) -> None:
        """Evaluate these filters up to the watermarks, by alias; no step goes on."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes of changes of shared nodes that wait for this query alone."""

    @property
    def as_of_us(self) -> int | None:
        """Instant up to which rows are complete; None: there are none yet."""

    @property
    def plan_choices(self) -> Sequence[tuple[str, str]]:
        """Names and texts of the decisions about the plan, for EXPLAIN."""

    @property
    def thinning(self) -> KeyThinning | None:
        """Seed and levels of the kept keys; None: all keys are kept."""

    @property
    def unmatched(self) -> Unmatched | None:
        """Rows that break the foreign key which a join relies on; None: none does."""

    def count_unmatched(self, from_us: int | None, unmatched: Unmatched) -> None:
        """Count them from an event time on, in µs, beside those of before; None: count all."""

    def share_with(self, other: object, agrees: Agrees) -> None:
        """Read the state of another flow where it is the same; `agrees` compares the inputs."""

    def split(self) -> None:
        """Go on with copies of the shared state, apart from other queries."""

    def leave(self) -> None:
        """Share nothing any more: the query ends."""

    def keeps(self, rows: object) -> bool:
        """Return whether an operator of the query reads this store of rows."""

    def end_step(self) -> None:
        """Forget the changes that were kept for other queries of this step."""

    def go_on(self) -> None:
        """Go on behind rows that were made before a restart, up to `as_of_us`."""

    def push(
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
    ) -> None:
        """Take tuples of an input, none of them before its watermark.

        Args:
          alias: of the input.
          batch: tuples, with the columns of the stream.
          positions: shape [tuples], positions in the stream.

        Raises:
          BudgetExceeded: the waiting tuples need more memory than the query may have.
        """

    def advance(self, watermarks: Mapping[str, int]) -> pa.Table:
        """Make a step and end it; as `parts` and `end`."""

    def parts(self, watermarks: Mapping[str, int]) -> Parts[Any]:
        """Raise watermarks, in µs by alias, and make a step for `end`.

        Raises:
          BudgetExceeded: the state needs more memory than the query may have.
        """

    def end(self, step: Any) -> pa.Table:
        """Put a step's changes into the relation, and return the rows that are complete now.

        step: as `parts` of the same flow returned it.

        Raises:
          BudgetExceeded: the relation needs more memory than the query may have.
        """

    def relation(self) -> pa.Table:
        """Return the present rows of a query that is a relation."""

    def least_place(self, alias: str) -> int | None:
        """Return the least place of the held tuples of a stream; None: no place is needed."""

    def operators(self) -> list[OperatorFacts]:
        """Return the facts of each operator behind its inputs; that of the rows is last."""

    def set_bytes_max(self, bytes_max: int) -> None:
        """Have another limit of the state."""

    def relieve(self, excess_bytes: int) -> bool:
        """Leave keys out, to free bytes from the next instant on; return False if it cannot."""

    def completeness(self, table: pa.Table) -> Completeness | None:
        """Return how complete the rows of an answer are; None: no key is left out."""
