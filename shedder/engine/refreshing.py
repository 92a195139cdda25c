"""Answering again what nobody has asked for yet: at once under load, piece by piece when idle."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from shedder.engine.stream import Stream


def refresh_stale(streams: Iterable[Stream], *, idle: bool) -> bool:
    """Answer the queries that are stale; when idle, also one of those whose windows were put off.

    One, and then whoever has something to apply goes first: all of them at once take as long as the
    overload did that put them off, and would begin the next one. On the apply thread.

    Returns:
      Whether there may be more to do when idle.
    """
    put_off = None
    for stream in streams:
        for published in list(stream.queries.values()):
            if published.stale:
                published.guard(partial(published.refresh, stream))
            elif idle and published.put_off:
                put_off = stream, published
    if put_off is None:
        return False
    stream, published = put_off
    published.guard(partial(published.refresh, stream))
    return not published.failed
