"""Graph of operators: nodes in the order of evaluation, each with its inputs and its label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from shedder.cql.plans.logical_plan import Plan
from shedder.dataflow.changes import ChangeBatch
from shedder.dataflow.step_parts import Parts
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


@runtime_checkable
class PartedOperator(Protocol):
    """An operator whose step may have several parts."""

    def parts(self, *args: Any, **kwargs: Any) -> Parts[ChangeBatch]:
        """As `ChangeOperator.apply`."""
        ...


class RowKeeper(Protocol):
    """What keeps the rows of a node for operators above it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows and of their indexes."""
        ...

    def append(self, as_of_us: int, changes: ChangeBatch, /) -> None:
        """Take the changes of a step, before an operator above gets them."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """An operator in the graph.

    operator: None for a source.
    inputs: indices of earlier nodes. alias: of a source, else None.
    schema, label: of the output.
    in_order: rows of one event time come in an order that depends on the tuples alone. That of
      the pairs of a join depends on the steps, too.
    kept: its rows, of a node whose rows operators above look up; else None.
    """

    operator: ChangeOperator | None
    inputs: tuple[int, ...]
    schema: pa.Schema
    label: EdgeLabel
    in_order: bool
    alias: str | None = None
    kept: RowKeeper | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the operator's state, and of the rows that are kept."""
        held = 0 if self.operator is None else self.operator.size_bytes
        return held if self.kept is None else held + self.kept.size_bytes


@dataclass(slots=True)
class NodeWork:
    """Work of one node since the graph was made.

    rows_in: changes of all inputs; of a source, tuples that were pushed. rows_out: of the output.
    ns: time by the graph's clock.
    """

    rows_in: int = 0
    rows_out: int = 0
    ns: int = 0

    def add(self, rows_in: int, rows_out: int, ns: int) -> None:
        """Count more work."""
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.ns += ns


class Graph:
    """Nodes with their work.

    nodes: each after its inputs, the result last. work: of each node.
    versions: `TableVersions` by alias.
    changes: `TableChanges` by alias, of the tables that are sources of changes.
    plans: by the place of a node, the part of the logical plan that its rows are.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        clock_ns: Callable[[], int],
        versions: Mapping[str, Any] = MappingProxyType({}),
        changes: Mapping[str, Any] = MappingProxyType({}),
        plans: Mapping[int, Plan] = MappingProxyType({}),
        work: tuple[NodeWork, ...] | None = None,
    ) -> None:
        """clock_ns: measures what operators take. work: before this graph; None: none."""
        self.nodes = nodes
        self.versions = versions
        self.changes = changes
        self.plans = plans
        self.work = tuple(NodeWork() for _ in nodes) if work is None else work
        self._clock_ns = clock_ns
        self._steps = tuple(map(_step_of, nodes))

    @property
    def result(self) -> Node:
        """The node whose output is the result."""
        return self.nodes[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of the states of all operators, and of the rows that are kept."""
        return sum(node.size_bytes for node in self.nodes)

    def below(self, at: int) -> list[int]:
        """Return the places of a node and of all nodes below it, in order."""
        found = {at}
        for place in range(at, -1, -1):
            if place in found:
                found.update(self.nodes[place].inputs)
        return sorted(found)

    def with_leaves(self, leaves: Mapping[int, ChangeOperator]) -> Graph:
        """Return a graph with operators without inputs in place of some nodes.

        Nodes that only those nodes read are left out.
        """
        nodes = [
            replace(node, operator=leaves[at], inputs=(), alias=None, kept=None)
            if at in leaves
            else node
            for at, node in enumerate(self.nodes)
        ]
        cut = Graph(tuple(nodes), self._clock_ns)
        kept = {old: new for new, old in enumerate(cut.below(len(nodes) - 1))}
        return Graph(
            tuple(
                replace(nodes[old], inputs=tuple(kept[at] for at in nodes[old].inputs))
                for old in kept
            ),
            self._clock_ns,
            self.versions,
            self.changes,
            {kept[old]: plan for old, plan in self.plans.items() if old in kept},
            tuple(NodeWork() if old in leaves else self.work[old] for old in kept),
        )

    def parts(self, as_of_us: int, sources: dict[str, ChangeBatch]) -> Parts[ChangeBatch]:
        """Evaluate all operators once. sources: changes by alias.

        Behind an operator whose step had several parts, each operator is a part.
        """
        made: list[ChangeBatch] = []
        has_parts = False
        for node, begin, work in zip(self.nodes, self._steps, self.work, strict=True):
            if begin is None:
                assert node.alias is not None
                made.append(sources[node.alias])
                if node.kept is not None:
                    began_ns = self._clock_ns()
                    node.kept.append(as_of_us, made[-1])
                    work.add(0, 0, self._clock_ns() - began_ns)
                continue
            inputs = [made[at] for at in node.inputs]
            step = begin(as_of_us, *inputs)
            changes: ChangeBatch | None = None
            began_ns = self._clock_ns()
            while changes is None:
                changes = _part(step)
                if changes is not None and node.kept is not None:
                    node.kept.append(as_of_us, changes)
                work.add(0, 0, self._clock_ns() - began_ns)
                if has_parts or changes is None:
                    has_parts = True
                    yield
                    began_ns = self._clock_ns()  # Of another thread, perhaps.
            work.add(sum(map(len, inputs)), len(changes), 0)
            made.append(changes)
        return made[-1]


def _step_of(node: Node) -> Callable[..., Parts[ChangeBatch]] | None:
    """Begin a step of an operator, which has one part unless it says otherwise."""
    operator = node.operator
    if operator is None:
        return None
    if isinstance(operator, PartedOperator):
        return operator.parts

    def whole(as_of_us: int, *inputs: ChangeBatch) -> Parts[ChangeBatch]:
        yield from ()
        return operator.apply(as_of_us, *inputs)

    return whole


def _part(step: Parts[ChangeBatch]) -> ChangeBatch | None:
    """Run a part; return what the step makes, or None: it has more parts."""
    try:
        next(step)
    except StopIteration as end:
        changes: ChangeBatch = end.value
        return changes
    return None
