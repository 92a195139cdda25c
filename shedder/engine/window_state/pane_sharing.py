"""Choice of the queries that read tuples, and of those that take the panes of another query."""

from __future__ import annotations

from collections.abc import Iterable

from shedder.engine.window_state.query_state import QueryState

PROVIDER_PANES_MAX = 10_000  # A batch may span a window: so many panes a provider makes at once.


def can_provide(provider: QueryState, consumer: QueryState) -> bool:
    """Return whether one query's panes are what another one's can be made of."""
    theirs, mine = provider.grid, consumer.grid
    if provider is consumer or theirs.width_us is None or mine.width_us is None:
        return False
    assert mine.range_us is not None
    assert mine.slide_us is not None
    panes = (mine.range_us + mine.slide_us) // theirs.width_us
    return (
        mine.width_us % theirs.width_us == 0
        and panes <= PROVIDER_PANES_MAX
        and theirs.coarsening.longest == 1  # Its panes stay until they have been taken.
        and provider.levels == consumer.levels
        and _reads_as(provider, consumer)
        and _is_as_large(provider, consumer)
        and not (provider.failed or consumer.failed)
        and not consumer.has_more_room(provider)
    )


def _reads_as(one: QueryState, other: QueryState) -> bool:
    """Return whether both read the same of the same tuples, whatever their windows and sizes."""
    mine, theirs = one.plan.parts, other.plan.parts
    return (
        one.query.schema.name == other.query.schema.name
        and one.query.where == other.query.where
        and one.query.groups == other.query.groups
        and len(mine) == len(theirs)
        and all(a.reads_as(b) for a, b in zip(mine, theirs, strict=True))
    )


def _is_as_large(one: QueryState, other: QueryState) -> bool:
    """Return whether no synopsis of one query is smaller than that of another query."""
    return all(a.size >= b.size for a, b in zip(one.plan.parts, other.plan.parts, strict=True))


def share_panes(queries: Iterable[QueryState]) -> None:
    """Let as few of these queries read tuples as can, from now on.

    Never while some have read a frame and others have not. What any of them holds and answers does
    not depend on when this is done.
    """
    ordered = sorted(queries, key=lambda each: (each.grid.width_us or 0, each.name))
    # Queries of different keys cannot share.
    alike: dict[tuple[tuple[int, ...], int], list[QueryState]] = {}
    for each in ordered:
        _end_impossible(each)
        if each.grid.width_us is not None:
            alike.setdefault((each.levels, each.reads), []).append(each)
    for some in alike.values():
        for consumer in some:
            if consumer.provider is None:
                _find_provider(consumer, some)


def _find_provider(consumer: QueryState, queries: Iterable[QueryState]) -> None:
    for provider in queries:
        chosen = provider.provider is None and _goes_before(provider, consumer)
        if chosen and can_provide(provider, consumer):
            for each in list(consumer.consumers):
                each.stop_sharing()  # They find another provider, which reads tuples.
            consumer.take_from(provider)
            return


def _goes_before(provider: QueryState, consumer: QueryState) -> bool:
    """Return whether one of two that could provide for each other does; a provider stays one."""
    if provider.grid.width_us != consumer.grid.width_us:
        return True
    mine, theirs = bool(provider.consumers), bool(consumer.consumers)
    return mine > theirs or (mine == theirs and provider.name < consumer.name)


def _end_impossible(query: QueryState) -> None:
    """End the sharing of a query where it is not possible any more."""
    if query.provider is not None and not can_provide(query.provider, query):
        query.stop_sharing()
    for each in [each for each in query.consumers if not can_provide(query, each)]:
        each.stop_sharing()
