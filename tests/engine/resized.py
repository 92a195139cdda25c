"""Sizes of a standing query's sketches, set by hand as a solution of the allocator sets them."""

from __future__ import annotations

from shedder.engine.engine import Engine
from shedder.engine.plan import Kind
from shedder.engine.standing import Standing


def resize(db: Engine, name: str, scale: int) -> Standing:
    """Make every sketch so many times two as large (2^scale), and wait until panes are so."""
    stream, published = db.core.published(name)
    standing = published.standing
    db.core.submit_sizes(stream, name, changed(standing, scale), standing.part_bytes_max).result()
    while db.core.actor.call(db.core.shrinks).result():
        pass
    return standing


def changed(standing: Standing, scale: int) -> tuple[int, ...]:
    logs = (Kind.DISTINCT, Kind.THETA, Kind.COUNTERS)
    return tuple(
        part.size
        if not part.size or part.kind is Kind.FREQUENT
        else part.size + scale
        if part.kind in logs
        else int(part.size * 2.0**scale)
        for part in standing.plan.parts
    )
