"""Pane sharing: one query reads the tuples, and queries of the same aggregates take its panes.

Golab's sharing rules SS1 and CS2 (2006, ch. 8): panes of one width serve every window and every
wider pane that is made of them. A query that is fed has the panes that it would have made, tuple
for tuple: it reads by itself what is late for its feeder's panes and not for its own, wider ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from shedder.cql.statements.bound_query import BoundQuery
from shedder.engine.panes.overflow_group import among_others
from shedder.engine.panes.pane import Pane
from shedder.engine.panes.pane_slices import first_at
from shedder.engine.synopsis_plans.synopsis_plan import Plan
from shedder.engine.window_state.pane_sharer import Feed, PaneSharer
from shedder.errors import InternalError
from shedder.streams.frame import Frame
from shedder.streams.group_keys import OTHERS

Sharer = TypeVar("Sharer", bound=PaneSharer)

FEEDER_PANES_MAX = 10_000  # A batch may span a window: so many panes its feeder may make at once.


# --- choice of feeders --------------------------------------------------------------------------


def can_feed(feeder: PaneSharer, taker: PaneSharer) -> bool:
    """Whether one query's panes are what another one's can be made of."""
    mine, theirs = feeder.grid, taker.grid
    if feeder is taker or mine.width_us is None or theirs.width_us is None:
        return False
    assert theirs.range_us is not None
    assert theirs.slide_us is not None
    panes = (theirs.range_us + theirs.slide_us) // mine.width_us
    return (
        theirs.width_us % mine.width_us == 0
        and panes <= FEEDER_PANES_MAX
        and mine.coarsening.longest == 1  # Its panes stay until they have been taken.
        and feeder.levels == taker.levels
        and _reads_as(feeder, taker)
        and all(a.size >= b.size for a, b in zip(feeder.plan.parts, taker.plan.parts, strict=True))
        and not (feeder.failed or taker.failed)
        and not _has_more_room(taker, feeder)
    )


def _has_more_room(taker: PaneSharer, feeder: PaneSharer) -> bool:
    """Whether groups that find no room in one query would find it in the other."""
    if taker.keys is None or feeder.keys is None:
        return False
    return feeder.keys.frozen and not taker.keys.frozen


def _reads_as(one: PaneSharer, other: PaneSharer) -> bool:
    """Whether both read the same of the same tuples, whatever their windows and sizes."""
    mine, theirs = one.plan.parts, other.plan.parts
    return (
        one.query.schema.name == other.query.schema.name
        and one.query.where == other.query.where
        and one.query.groups == other.query.groups
        and len(mine) == len(theirs)
        and all(a.reads_as(b) for a, b in zip(mine, theirs, strict=True))
    )


def feed_each_other(queries: Iterable[PaneSharer]) -> None:
    """Let as few of these queries read tuples as can, from now on.

    Never while some have read a frame and others have not. What any of them holds and answers does
    not depend on when this is done.
    """
    ordered = sorted(queries, key=lambda each: (each.grid.width_us or 0, each.name))
    # Queries of different keys cannot feed each other.
    alike: dict[tuple[tuple[int, ...], int], list[PaneSharer]] = {}
    for each in ordered:
        check_feeds(each)
        if each.grid.width_us is not None:
            alike.setdefault((each.levels, each.reads), []).append(each)
    for some in alike.values():
        for taker in some:
            if taker.feed is not None:
                continue
            for feeder in some:
                if feeder.feed is None and _goes_before(feeder, taker) and can_feed(feeder, taker):
                    for each in list(taker.takers):  # They find another feeder, which is not fed.
                        leave(each)
                    take_from(taker, feeder)
                    break


def reads_hash(query: BoundQuery, plan: Plan) -> int:
    """Of what a query keeps of which tuples: queries that read the same have the same."""
    parts = tuple((part.kind, part.variance, part.argument, part.second) for part in plan.parts)
    return hash((query.schema.name, query.where, query.groups, parts))


def _goes_before(feeder: PaneSharer, taker: PaneSharer) -> bool:
    """Order two queries that could feed each other: a present feeder goes first."""
    if feeder.grid.width_us != taker.grid.width_us:
        return True
    mine, theirs = bool(feeder.takers), bool(taker.takers)
    return mine > theirs or (mine == theirs and feeder.name < taker.name)


def take_from(taker: PaneSharer, feeder: PaneSharer, since: tuple[int, int] | None = None) -> None:
    """Let a query take another one's panes.

    Args:
      taker, feeder: of which `can_feed` holds.
      since: the first pane that is read for the taker and the next to be taken, as they were before
        a restart; None: from the first pane on that was not begun yet.
    """
    if since is None:
        ratio = _ratio(feeder, taker)
        begun = [*taker.panes, *(pane // ratio for pane in feeder.panes)]
        begun += [] if taker.panes.closed_to is None else [taker.panes.closed_to - 1]
        assert taker.grid.width_us is not None
        first = max(begun, default=-(1 << 63) // taker.grid.width_us) + 1
        since = (first, first)
    taker.feed_from(Feed(feeder, *since))
    feeder.takers.append(taker)


def leave(taker: PaneSharer) -> None:
    """Let a query read tuples by itself again; at the moments that `feed_each_other` names."""
    feed = taker.feed
    assert feed is not None
    taker.feed_from(None)
    feed.feeder.takers.remove(taker)
    if feed.feeder.failed:
        taker.fail()
    if taker.failed:
        return
    ratio = _ratio(feed.feeder, taker)
    for number in sorted(n for n in feed.feeder.panes if n >= feed.next_pane * ratio):
        _fold_in(taker, number // ratio, feed.feeder.panes[number], feed.feeder)


def part(standing: PaneSharer) -> None:
    """End all sharing of a query that is going to be dropped."""
    for each in list(standing.takers):
        leave(each)
    if standing.feed is not None:
        standing.feed.feeder.takers.remove(standing)
        standing.feed_from(None)


def check_feeds(standing: PaneSharer) -> None:
    """What cannot be shared any more is not."""
    if standing.feed is not None and not can_feed(standing.feed.feeder, standing):
        leave(standing)
    for each in [each for each in standing.takers if not can_feed(standing, each)]:
        leave(each)


# --- at work ------------------------------------------------------------------------------------


def own_rows_end(
    taker: PaneSharer, frame: Frame, first: int, last: int, watermark_us: int | None
) -> int:
    """One past the last of a frame's rows that a query reads itself; it is fed with the rest.

    Args:
      taker: that has a feed, or has none and reads all.
      frame: in time order. first, last: its rows that are timely and needed.
      watermark_us: as it was before the frame.
    """
    if taker.feed is None:
        return last
    theirs, mine = taker.feed.feeder.grid, taker.grid
    assert theirs.width_us is not None
    assert mine.width_us is not None
    from_us = taker.feed.from_pane * mine.width_us
    first_open = theirs.first_open(watermark_us)
    if first_open is not None:
        from_us = max(from_us, first_open * theirs.width_us)
    return min(max(first, first_at(frame.times_us, from_us)), last)


def needed_from_us(standing: PaneSharer) -> int | None:
    """Before which event time no window needs the next frame's tuples; None: all may be needed."""
    starts = []
    for each in (standing, *standing.takers):
        if each.asked_from_us is None or not each.grid.slides:
            return None
        starts.append(each.grid.window_start(each.asked_from_us))
    return min(starts)


def readers_of(standing: Sharer, pane: int) -> list[Sharer]:
    """A query, and those that it reads one of its panes for."""
    readers = [standing]
    for each in standing.takers:
        assert each.feed is not None
        if pane >= each.feed.from_pane * _ratio(standing, each):
            readers.append(each)
    return readers


def first_untaken(standing: PaneSharer) -> int | None:
    """Return the first pane that some taker has not taken yet; None: there is no taker."""
    feeds = [(each.feed, _ratio(standing, each)) for each in standing.takers]
    return min((feed.next_pane * ratio for feed, ratio in feeds if feed is not None), default=None)


def untaken_panes(taker: PaneSharer) -> set[int]:
    """The panes of a query whose tuples its feeder has read, and which it has not taken yet."""
    feed = taker.feed
    if feed is None:
        return set()
    ratio = _ratio(feed.feeder, taker)
    return {it // ratio for it in feed.feeder.panes if it >= feed.next_pane * ratio}


def take(taker: PaneSharer, until: int, watermark_us: int | None) -> None:
    """Make a query's panes before this one of those that its feeder closes, if it has one.

    Raises:
      InternalError: the feeder has failed, and what it read is not whole.
    """
    feed = taker.feed
    if feed is None:
        return
    if feed.feeder.failed:
        raise InternalError(f"query {feed.feeder.name!r}, whose panes it takes, has failed")
    feed.feeder.close(watermark_us)
    if taker.feed is not feed:  # Closing has ended the sharing, and moved all of the rest.
        return
    ratio = _ratio(feed.feeder, taker)
    numbers = feed.feeder.panes.closed.numbers_in(feed.next_pane * ratio, until * ratio)
    for number in dict.fromkeys(each // ratio for each in numbers):
        whole = feed.feeder.panes.closed.stretch(range(number * ratio, (number + 1) * ratio))
        if number in taker.panes or taker.keys is not None or whole.is_larger_than(taker.plan):
            _fold_in(taker, number, whole, feed.feeder)
        else:
            taker.panes.close(number, whole)  # One object for both: closed panes never change.
    feed.advance(until)
    taker.hold_to_the_cap()


def _ratio(feeder: PaneSharer, taker: PaneSharer) -> int:
    """How many panes of the feeder make one of the taker."""
    assert taker.grid.width_us is not None
    assert feeder.grid.width_us is not None
    return taker.grid.width_us // feeder.grid.width_us


def _fold_in(taker: PaneSharer, number: int, pane: Pane, feeder: PaneSharer) -> None:
    """Merge a pane of the feeder into an open one of the taker."""
    translated = _translated(pane, feeder, taker)
    held = taker.panes.open_pane(number, 0)
    held.grow(taker.panes.groups)
    held.merge(translated)
    taker.panes.fit_widths(held)


def _translated(pane: Pane, feeder: PaneSharer, taker: PaneSharer) -> Pane:
    """The feeder's pane with the taker's ids of groups."""
    if taker.keys is None or feeder.keys is None:
        return pane
    ids = pane.groups_here
    mine = np.zeros(len(ids), np.int64)
    named = ids != OTHERS
    mine[named] = taker.keys.adopt(
        feeder.keys.hashes(ids[named]), list(feeder.keys.keys(ids[named]))
    )
    if not named.all() and taker.keys.partial_from is None:
        taker.keys.note_partial(1)  # Any group may have tuples among the others.
    return among_others(pane.select(ids), mine, taker.keys.size)
