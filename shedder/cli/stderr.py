"""Messages of the command line: always on stderr, so that stdout is data only."""

from __future__ import annotations

import sys

from rich.console import Console

from shedder.queries.answers.control_characters import escaped_lines


def console() -> Console:
    """A console on the present stderr; colours only on a terminal and without NO_COLOR."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)


def say(text: str, style: str = "") -> None:
    """One message; its markup is not interpreted, and its control characters are escaped."""
    console().print(escaped_lines(text), style=style, markup=False)
