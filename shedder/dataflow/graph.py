"""Graph of operators: nodes in the order of evaluation, each with its inputs and its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.update_patterns import EdgeLabel


class ChangeOperator(Protocol):
    """A state machine over changes. It has no clock and does no I/O."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its state."""
        ...

    def apply(self, *args: Any, **kwargs: Any) -> ChangeBatch:
        """Take (as_of_us, changes of each input); give the changes of the output.

        All tuples with event time before `as_of_us` are in this call or in earlier ones.
        """
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """An operator in the graph.

    operator: None for a source.
    inputs: indices of earlier nodes. alias: of a source, else None.
    schema, label: of the output.
    in_order: rows of one event time come in an order that depends on the tuples alone. That of
      the pairs of a join depends on the steps, too.
    """

    operator: ChangeOperator | None
    inputs: tuple[int, ...]
    schema: pa.Schema
    label: EdgeLabel
    in_order: bool
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes; each after its inputs, the result last."""

    nodes: tuple[Node, ...]

    @property
    def result(self) -> Node:
        """The node whose output is the result."""
        return self.nodes[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of the states of all operators."""
        return sum(node.operator.size_bytes for node in self.nodes if node.operator is not None)

    def apply(self, as_of_us: int, sources: dict[str, ChangeBatch]) -> ChangeBatch:
        """Evaluate all operators once. sources: changes by alias."""
        made: list[ChangeBatch] = []
        for node in self.nodes:
            if node.operator is None:
                assert node.alias is not None
                made.append(sources[node.alias])
            else:
                made.append(node.operator.apply(as_of_us, *(made[at] for at in node.inputs)))
        return made[-1]
