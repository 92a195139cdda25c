"""Sizes of a standing query's sketches, set by hand as a solution of the allocator sets them."""

from __future__ import annotations

from shedder.engine.apply.size_records import shrinks, submit_sizes
from shedder.engine.engine import Engine
from shedder.engine.synopsis_plans.error_curves import SIZED
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec
from shedder.engine.window_state.query_state import QueryState


def resize(db: Engine, name: str, scale: int) -> QueryState:
    """Make every sketch so many times two as large (2^scale), and wait until panes are so."""
    stream, standing_query = db.core.standing_query(name)
    query_state = standing_query.state
    submit_sizes(
        db.core, stream, name, changed(query_state, scale), query_state.sizes.part_bytes_max
    ).result()
    while db.core.executor.call(lambda: shrinks(db.core)).result():
        pass
    return query_state


def changed(query_state: QueryState, scale: int) -> tuple[int, ...]:
    """Sizes 2^scale times as large, within those that panes may have."""
    return tuple(_changed(part, scale) for part in query_state.plan.parts)


def _changed(part: SynopsisSpec, scale: int) -> int:
    if not part.size or part.kind is SynopsisKind.FREQUENT:
        return part.size
    is_log = part.kind in (SynopsisKind.DISTINCT, SynopsisKind.THETA, SynopsisKind.COUNTERS)
    sizes = SIZED[part.kind]
    wanted = part.size + scale if is_log else int(part.size * 2.0**scale)
    return min(max(wanted, sizes.smallest), sizes.largest)
