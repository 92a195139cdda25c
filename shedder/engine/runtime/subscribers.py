"""Subscribers of a standing query's new answers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from shedder.errors import ShedderError
from shedder.queries.answers.answer import Answer

AnswerUpdate = (
    Answer | ShedderError
)  # A slide whose contract is FAIL and whose target is missed errs.
Listener = Callable[[AnswerUpdate], None]

_log = structlog.get_logger("shedder.listeners")


class Subscribers:
    """A set of callbacks that may change while it is being told. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Tell this one too; returns how to stop that."""
        with self._lock:
            number = self._next
            self._next += 1
            self._listeners[number] = listener

        def remove() -> None:
            with self._lock:
                self._listeners.pop(number, None)

        return remove

    def tell(self, update: AnswerUpdate) -> None:
        """Call all listeners on this thread. A listener that raises is removed; the others stay."""
        with self._lock:
            listeners = list(self._listeners.items())
        for number, listener in listeners:
            try:
                listener(update)
            except Exception as error:
                _log.error("listener_removed", exc_info=error)
                with self._lock:
                    self._listeners.pop(number, None)
