"""Protocol of the operators of a standing row query, whether they keep all keys or a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.dataflow.operator_facts import OperatorFacts
from shedder.dataflow.sharing.shared_source import StreamSource
from shedder.dataflow.sharing.source_graph import Agrees
from shedder.dataflow.step_parts import Parts
from shedder.engine.dataflow.flow import SharedPart
from shedder.engine.dataflow.thinning_levels import KeyThinning
from shedder.queries.answers.completeness import Completeness


class QueryFlow(Protocol):
    """`RowFlow` and `ThinnedFlow`, whose methods say what each does. A step is for `end` alone."""

    @property
    def is_stream(self) -> bool: ...  # noqa: D102
    @property
    def sources(self) -> Mapping[str, StreamSource]: ...  # noqa: D102
    @property
    def size_bytes(self) -> int: ...  # noqa: D102
    @property
    def shared_parts(self) -> tuple[SharedPart, ...]: ...  # noqa: D102
    @property
    def is_shared(self) -> bool: ...  # noqa: D102
    @property
    def backlog_bytes(self) -> int: ...  # noqa: D102
    @property
    def as_of_us(self) -> int | None: ...  # noqa: D102
    @property
    def plan_choices(self) -> Sequence[tuple[str, str]]: ...  # noqa: D102
    @property
    def thinning(self) -> KeyThinning | None: ...  # noqa: D102

    def share_with(self, other: object, agrees: Agrees) -> None: ...  # noqa: D102
    def split(self) -> None: ...  # noqa: D102
    def leave(self) -> None: ...  # noqa: D102
    def keeps(self, rows: object) -> bool: ...  # noqa: D102
    def end_step(self) -> None: ...  # noqa: D102
    def go_on(self) -> None: ...  # noqa: D102
    def push(  # noqa: D102
        self,
        alias: str,
        batch: pa.RecordBatch,
        positions: NDArray[np.int64],
        places: NDArray[np.int64] | None,
    ) -> None: ...
    def advance(self, watermarks: Mapping[str, int]) -> pa.Table: ...  # noqa: D102
    def parts(self, watermarks: Mapping[str, int]) -> Parts[Any]: ...  # noqa: D102
    def end(self, step: Any) -> pa.Table: ...  # noqa: D102
    def relation(self) -> pa.Table: ...  # noqa: D102
    def least_place(self, alias: str) -> int | None: ...  # noqa: D102
    def operators(self) -> list[OperatorFacts]: ...  # noqa: D102
    def relieve(self, excess_bytes: int) -> bool: ...  # noqa: D102
    def completeness(self, table: pa.Table) -> Completeness | None: ...  # noqa: D102
