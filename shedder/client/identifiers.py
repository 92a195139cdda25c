"""Names that clients give themselves as producers, so that their retries are idempotent, too."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from shedder.engine.ingest.producer_sequences import OWN_PREFIX


class OwnNames:
    """A few names, each used by one push at a time. Safe from any thread."""

    def __init__(self) -> None:
        self._idle: deque[str] = deque()

    @contextmanager
    def name(self, given: str | None) -> Iterator[str]:
        """Yield the caller's name, or a generated name that no other call uses now.

        A name is not used again after an error: what was sent under it may be stored later.
        """
        if given:
            yield given
            return
        try:
            own = self._idle.pop()
        except IndexError:
            own = OWN_PREFIX + secrets.token_hex(8)
        yield own
        self._idle.append(own)
