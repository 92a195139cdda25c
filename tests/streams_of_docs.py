"""The streams that the sql blocks of the documentation ask about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import shedder
from examples.embedded import CREATE
from examples.requests import requests
from shedder.engine.engine import Engine

ROWS = 5_000


@contextmanager
def demo_database(directory: Path) -> Iterator[Engine]:
    """An embedded database with the stream `requests`, an hour of made-up web requests."""
    with shedder.open(directory) as database:
        database.execute(CREATE)
        database.push("requests", requests(ROWS))
        yield database
