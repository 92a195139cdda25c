"""Statements in a script: where one ends, told by quotes and comments alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shedder.errors import BadSetting

# Quoted text (a doubled quote stays inside), comments, a semicolon, or anything else. An open
# quote or comment runs to the end, so that its statement is not complete.
_TOKEN = re.compile(
    r"""
    (?P<quoted>'(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z))
    | (?P<comment>--[^\n]*(?:\n|\Z) | /\*.*?(?:\*/|\Z))
    | (?P<end>;)
    | (?P<other>[^'";/-]+ | .)
    """,
    re.VERBOSE | re.DOTALL,
)


def script_in(file: Path) -> str:
    """The text of a file, in UTF-8; some editors begin it with a mark that is not part of it.

    Raises:
      BadSetting: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read the script {str(file)!r}: {error}") from error


def statements(text: str) -> Iterator[str]:
    """The statements of a script, trimmed, without their semicolon; empty ones are left out."""
    for _, statement in placed(text):
        yield statement


def placed(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a script, each with the line that it begins in, from 1."""
    for start, piece, _ in _pieces(text):
        blank = len(piece) - len(piece.lstrip())
        yield text.count("\n", 0, start + blank) + 1, piece.strip()


def is_complete(text: str) -> bool:
    """Return whether the last statement has its semicolon (an empty text is complete)."""
    pieces = list(_pieces(text))
    return all(ended for _, _, ended in pieces)


def _pieces(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield begin and text of each statement, and whether it has its semicolon."""
    start = 0
    meaningful = False
    for token in _TOKEN.finditer(text):
        if token["end"] is not None:
            if meaningful:
                yield start, text[start : token.start()], True
            start, meaningful = token.end(), False
        elif token["comment"] is None and not token[0].isspace():
            meaningful = True
    if meaningful:
        yield start, text[start:], False
