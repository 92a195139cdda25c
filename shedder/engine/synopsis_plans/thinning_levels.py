"""KeyThinning levels of a plan as values: checks, forced levels over others, and their text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shedder.cql.expressions.expression import Aggregate, Column, Expression, walk
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.text.sampling_fractions import LEVEL_MAX, share_text
from shedder.engine.synopsis_plans.synopsis_plan import ENDS_IN_TIME, SynopsisPlan
from shedder.errors import BadQuery, BadSetting


def with_levels(levels: Sequence[int], changes: Mapping[int, int]) -> tuple[int, ...]:
    """The level of each synopsis of a plan once some are told another one.

    The rows, synopsis 0, are counted at the smallest level of all, because they name the groups:
    unless they are told a smaller one themselves, they follow the others.

    Args:
      levels: of each synopsis of the plan, in order.
      changes: from the number of a synopsis to its new level; 2^-level is the share it reads.

    Raises:
      BadSetting: there is no such synopsis, or it is no level.
    """
    for part, level in changes.items():
        if not 0 <= part < len(levels):
            raise BadSetting(f"synopsis {part}; the query has synopses 0 to {len(levels) - 1}")
        if not 0 <= level <= LEVEL_MAX:
            raise BadSetting(f"level is {level}; it must be 0 to {LEVEL_MAX}")
    others = [changes.get(part, level) for part, level in enumerate(levels)][1:]
    rows = changes.get(0, min(others, default=levels[0]))
    return (min([rows, *others]), *others)


def levels_read(plan: SynopsisPlan, levels: Sequence[int], *, grouped: bool) -> list[int]:
    """The levels; but one end of a batch is found faster than what to skip is chosen."""
    return [
        0 if not grouped and part.kind in ENDS_IN_TIME else level
        for part, level in zip(plan.parts, levels, strict=True)
    ]


def by_load(
    levels: Sequence[int], forced: Collection[int], changes: Mapping[int, int]
) -> tuple[int, ...]:
    """The level of each synopsis of a plan once load has set those of some; forced ones stay."""
    free = {
        part: level
        for part, level in changes.items()
        if part not in forced and 0 <= part < len(levels)
    }
    return with_levels(levels, free)


def synopses_of(
    query: BoundQuery, plan: SynopsisPlan, targets: Sequence[Expression]
) -> frozenset[int]:
    """The numbers of the synopses that answer outputs or aggregates; of none, all of the plan.

    Args:
      query: whose plan it is.
      targets: an output column by its name, or an aggregate as the query has it.

    Raises:
      BadQuery: the query has neither; says what it has.
    """
    if not targets:
        return frozenset(range(len(plan.parts)))
    found: set[int] = set()
    for expression in targets:
        for aggregate in _aggregates(query, expression):
            at = query.aggregates.index(aggregate)
            found.add(plan.answers[at])
            partner = plan.partners[at]
            found |= set() if partner is None else {partner}
    return frozenset(found)


def outputs_of(query: BoundQuery, plan: SynopsisPlan, parts: Iterable[int]) -> list[str]:
    """The names of the output columns that any of these synopses answers."""
    chosen = set(parts)
    answered = {
        aggregate
        for aggregate, part, partner in zip(
            query.aggregates, plan.answers, plan.partners, strict=True
        )
        if part in chosen or partner in chosen
    }
    return [item.name for item in query.outputs if answered & set(_inside(item.expression))]


def levels_text(levels: Sequence[int]) -> str:
    """The share that all synopses read, or that of each."""
    return ", ".join(map(share_text, levels if len(set(levels)) > 1 else levels[:1]))


def _aggregates(query: BoundQuery, target: Expression) -> list[Aggregate]:
    if isinstance(target, Column):
        named = [item for item in query.outputs if item.name.lower() == target.name.lower()]
        found = [aggregate for item in named for aggregate in _inside(item.expression)]
    else:
        found = [each for each in query.aggregates if text_of(each) == text_of(target)]
    if not found:
        known = [item.name for item in query.outputs if _inside(item.expression)]
        known += [text_of(aggregate) for aggregate in query.aggregates]
        raise BadQuery(
            f"nothing of the query that can be thinned is called {text_of(target)}; "
            f"there are {', '.join(dict.fromkeys(known))}"
        )
    return found


def _inside(expression: Expression) -> list[Aggregate]:
    return [node for node in walk(expression) if isinstance(node, Aggregate)]
