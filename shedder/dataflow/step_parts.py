"""Parts of a step: a step that makes much stops between its parts, and another thread may go on.

A step is a generator. It yields behind a part, and returns what it has made. A step that makes
little has one part, and yields never.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Made = TypeVar("Made")
Parts = Generator[None, None, Made]


def finished(step: Parts[Made]) -> Made:
    """Run all parts of a step; return what it makes."""
    while True:
        try:
            next(step)
        except StopIteration as end:
            made: Made = end.value
            return made
