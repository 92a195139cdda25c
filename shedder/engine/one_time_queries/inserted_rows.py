"""Rows that standing queries insert: a one-time query waits for those of tuples pushed before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import replace

from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.engine_state import LOOK_S, EngineState
from shedder.queries.answers.answer import Answer

WAIT_S = 30.0  # Longest wait for the rows of one query; s. A log that fails ends it earlier.


def await_inserted(core: EngineState, relations: Iterable[str]) -> tuple[str, ...]:
    """Wait until streams have the rows that standing queries have made of all durable tuples.

    Under overload the wait is LOOK_S, as that of other looks.

    relations: names of streams or tables in a one-time query.

    Returns:
      For each view with tuples that its rows lack, a note for the answer.
    """
    notes = []
    for writer in _writers(core, relations):
        for look in (writer.query.when_read, writer.when_stored):
            with suppress(FutureTimeout):
                core.look(look).result(LOOK_S if core.sheds else WAIT_S)
        if writer.target.is_view:
            missing_notes = core.look(writer.query.missing_notes)
            notes += [f"view {writer.target.stream}: {each}" for each in missing_notes]
    return tuple(notes)


def with_notes(answer: Answer, notes: tuple[str, ...]) -> Answer:
    """Return an answer with notes of views; it is not complete if there are any."""
    if not notes:
        return answer
    return replace(answer, notes=(*answer.notes, *notes), complete=False)


def _writers(core: EngineState, relations: Iterable[str]) -> Iterator[RowWriter]:
    """The writers into streams, each behind the writers into what its query reads."""
    seen: set[str] = set()
    waiting = [(name, False) for name in relations]
    while waiting:
        name, sources_are_done = waiting.pop()
        if sources_are_done:
            yield from core.rows.into(name)
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            sources = (each.query.streams for each in core.rows.into(name))
            waiting += [(source, False) for streams in sources for source in streams]
