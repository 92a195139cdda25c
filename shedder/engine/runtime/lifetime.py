"""The state of an engine, open or closed, which every call of its interface checks first."""

from __future__ import annotations

import threading

from shedder.errors import Draining


class Lifetime:
    """One engine is open until `end`, and never again. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False

    def check_open(self) -> None:
        """Raise Draining when the engine is closed."""
        if self._ended:
            raise Draining("the database is closed")

    def end(self) -> bool:
        """Refuse calls from now on; return whether the engine was open until now."""
        with self._lock:
            was_open, self._ended = not self._ended, True
            return was_open
