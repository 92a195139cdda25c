"""LIKE patterns as regular expressions of RE2."""

from __future__ import annotations

import re


def regex_of_like(pattern: str) -> str:
    """The regular expression that matches what LIKE matches: the whole text, by characters.

    % is any text, _ any one character, a backslash makes the next character itself.
    """
    parts: list[str] = []
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            parts.append(re.escape(character))
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append("." if character == "_" else ".*")
    return rf"(?s)\A{''.join(parts)}\z"
