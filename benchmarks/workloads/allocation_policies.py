"""Ways to share bytes out: queries and a budget in, bytes for each query out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from allocator.allocate import allocate
from allocator.curves import table
from allocator.demands import Budget, Demands, Readers
from benchmarks.workloads.allocation_queries import NO_ANSWER, Doubles, Integers, WorkloadQuery


def needed(query: WorkloadQuery) -> int:
    """The bytes that meet the target, or the most that there are."""
    _, held, errors = query.sizes()
    meets = np.flatnonzero(errors <= query.target)
    return int(held[meets[0]] if len(meets) else held[-1])


def synopses(queries: Sequence[WorkloadQuery], *, shared: bool) -> Integers:
    """int64 [queries]: the number of each one's synopsis; those with one question may share one."""
    if not shared:
        return np.arange(len(queries))
    keys = [(query.kind.name, id(query.column)) for query in queries]
    known = list(dict.fromkeys(keys))
    return np.array([known.index(each) for each in keys])


def allocated(
    queries: Sequence[WorkloadQuery], budget: int, *, shared: bool, with_targets: bool = True
) -> Integers:
    """Bytes of each one's synopsis by the allocator; one option is to have none at all."""
    synopsis = synopses(queries, shared=shared)
    firsts = [queries[at] for at in np.unique(synopsis, return_index=True)[1]]
    curves = [query.sizes() for query in firsts]
    options = table(
        [query.kind.name for query in firsts],
        [np.append(0, held) for _, held, _ in curves],
        [np.zeros(1)] * len(firsts),
        [np.append(NO_ANSWER, errors)[:, None] for *_, errors in curves],
    )
    target = np.array([query.target if with_targets else np.inf for query in queries])
    readers = Readers(
        synopsis,
        np.array([query.weight for query in queries]),
        scale=np.ones(len(queries)),
        target=target,
        forfeit=np.where(np.isfinite(target), target, 0.0),
        promised=np.zeros(len(queries), bool),
    )
    given = allocate(Demands.new(options, readers), Budget(budget)).size_bytes
    assert given.sum() <= budget
    return given[synopsis]


def least(query: WorkloadQuery) -> int:
    """The bytes below which there is no answer at all."""
    return int(query.sizes()[1][0])


def with_least(
    queries: Sequence[WorkloadQuery], budget: int, more: Callable[[float], Doubles]
) -> Integers:
    """What a policy gives at the largest scale that fits, but to each what it needs to answer.

    Else half of a policy's queries would err by 100 % in shortage, because its parts are a little
    below the smallest sketch that there is. Where not even these fit, the smallest do.

    Args:
      more: bytes by scale, in [0, 1], not falling.
    """
    floor = np.array([least(query) for query in queries], np.float64)
    if floor.sum() > budget:
        order = np.argsort(floor, kind="stable")
        granted = np.zeros(len(queries))
        granted[order] = np.where(np.cumsum(floor[order]) <= budget, floor[order], 0)
        return granted.astype(np.int64)
    low, high = 0.0, 1.0
    for _ in range(60):
        scale = (low + high) / 2
        if np.maximum(floor, more(scale)).sum() <= budget:
            low = scale
        else:
            high = scale
    whole = np.maximum(floor, more(low)).astype(np.int64)
    assert whole.sum() <= budget
    return whole


def equal(queries: Sequence[WorkloadQuery], budget: int) -> Integers:
    """The same for every query."""
    return with_least(queries, budget, lambda scale: np.full(len(queries), scale * budget))


def equal_shared(queries: Sequence[WorkloadQuery], budget: int) -> Integers:
    """The same for every synopsis, each of which serves all that ask its question."""
    synopsis = synopses(queries, shared=True)
    firsts = [queries[at] for at in np.unique(synopsis, return_index=True)[1]]
    return equal(firsts, budget)[synopsis]


def proportional(queries: Sequence[WorkloadQuery], budget: int) -> Integers:
    """In proportion to weight times what the target needs."""
    wanted = np.array([query.weight * needed(query) for query in queries])
    return with_least(queries, budget, lambda scale: scale * budget * wanted / wanted.min())


def greedy(queries: Sequence[WorkloadQuery], budget: int) -> Integers:
    """What the target needs, the smallest first, until nothing is left."""
    wanted = np.array([needed(query) for query in queries])
    order = np.argsort(wanted, kind="stable")

    def first(scale: float) -> Doubles:
        given = np.zeros(len(queries))
        given[order[: int(scale * len(queries))]] = wanted[order[: int(scale * len(queries))]]
        return given

    return with_least(queries, budget, first)


def defaults(queries: Sequence[WorkloadQuery], budget: int) -> Integers:
    """The library's default sizes; all smaller by one factor where they do not fit."""
    usual = np.array([q.kind.profile.bytes_of(q.kind.profile.default, q.known) for q in queries])
    return with_least(queries, budget, lambda scale: scale * usual)


POLICIES: tuple[tuple[str, Callable[[Sequence[WorkloadQuery], int], Integers]], ...] = (
    ("**ours**", partial(allocated, shared=True)),
    ("ours, without targets", partial(allocated, shared=True, with_targets=False)),
    ("ours, a synopsis for each query", partial(allocated, shared=False)),
    ("equal split", equal),
    ("equal split of shared synopses", equal_shared),
    ("in proportion to weight and need", proportional),
    ("greedy, smallest need first", greedy),
    ("library defaults, scaled to fit", defaults),
)


UNTARGETED, SHARING = "ours, without targets", "equal split of shared synopses"
RIVALS = tuple(name for name, _ in POLICIES if not name.strip("*").startswith("ours"))
