"""What the command line says to people: always on stderr, so that stdout is data only."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """A console on the present stderr; colours only on a terminal and without NO_COLOR."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """One message, markup characters taken literally."""
    console().print(text, style=style, markup=False)
