"""A query plan as a tree of operators, and its precision from theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allocator.errors import BadPrecision
from allocator.plan_precision.operators import Operator
from allocator.plan_precision.precision import EXACT, Precision


@dataclass(frozen=True, slots=True)
class Step:
    """An operator in a plan. inputs: steps, in order; none of a base stream.

    name: unique in the plan. operator: None for a base stream, which is exact.

    Raises:
      BadPrecision: an operator has too few inputs or too many; a step is there twice: what comes of
        one stream twice is not independent.
    """

    name: str
    operator: Operator | None = None
    inputs: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        wanted = 0 if self.operator is None else self.operator.arity
        if len(self.inputs) != wanted:
            raise BadPrecision(f"inputs of {self.name}", str(wanted), len(self.inputs))
        names = [step.name for step in self.walk()]
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadPrecision("steps", "there once in a plan", twice[0])

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
