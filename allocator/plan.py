"""A query plan as a tree of operators, and its precision from theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allocator.operators import Operator
from allocator.precision import EXACT, Precision


@dataclass(frozen=True, slots=True)
class Step:
    """An operator in a plan. inputs: steps, in order; none of a base stream.

    name: unique in the plan. operator: None for a base stream, which is exact.
    """

    name: str
    operator: Operator | None = None
    inputs: tuple[Step, ...] = ()

    def walk(self) -> Iterator[Step]:
        """All steps below, then this one."""
        for step in self.inputs:
            yield from step.walk()
        yield self


def precision_of(plan: Step, own: Mapping[str, Precision]) -> Precision:
    """The precision of a plan's result, bottom up.

    Args:
      plan: its root.
      own: each operator's own precision, by name; exact where it is missing. Arrays broadcast:
        many allocations are looked at in one pass.
    """
    if plan.operator is None:
        return EXACT
    inputs = tuple(precision_of(step, own) for step in plan.inputs)
    return plan.operator.output(own.get(plan.name, EXACT), inputs)
