"""Prose in code: each sentence names the component that acts."""

from __future__ import annotations

import ast
import io
import re
import tokenize

import pytest

from tests.repository import ROOT, tracked

# Pronouns without a noun that are left in the code. A commit may lower this number only.
HEADLESS_MAX = 82

# A relative clause may say "who" of a person: "the operator who runs the server".
_PERSONS = r"persons?|people|users?|operators?|engineers?|authors?"
_HEADLESS = re.compile(
    rf"\b(?:(?:{_PERSONS})\s+who|(who|whoever|nobody|somebody))\b", re.IGNORECASE
)


def headless(text: str) -> list[str]:
    """Find pronouns without a noun in the comments, docstrings and strings of a module's text."""
    if not any(match[1] for match in _HEADLESS.finditer(text)):
        return []  # Most modules: reading their text is faster than parsing it.
    return [
        f"{line}: {match[1]}"
        for line, prose in sorted([*_comments(text), *_strings(text)])
        for match in _HEADLESS.finditer(prose)
        if match[1]
    ]


def _comments(text: str) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def _strings(text: str) -> list[tuple[int, str]]:
    return [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_who_acts_is_a_component():
    paths = [path for path in tracked("*.py") if path != ROOT / "tests/test_prose.py"]
    found = [f"{p.relative_to(ROOT)}:{at}" for p in paths for at in headless(p.read_text())]
    assert len(found) <= HEADLESS_MAX, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1  # Who reads it waits.", ["1: Who"]),
        (
            '"""A lock.\n\nWhoever holds it writes, and nobody reads."""',
            ["1: Whoever", "1: nobody"],
        ),
        ('raise Draining(f"{name}: somebody stopped it")', ["1: somebody"]),
        ("# Users who stop it, and an operator who\nx = 1", []),
        ("# A client who waits.\nx = 1", ["1: who"]),
        ("# Those whose turn it is: a whole tick.\nx = 1", []),
        ("nobody = who(somebody)", []),
    ],
)
def test_a_pronoun_without_a_noun_is_found(text, found):
    assert headless(text) == found
