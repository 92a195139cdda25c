"""Prose in code: each sentence names the component that acts."""

from __future__ import annotations

import ast
import io
import re
import tokenize

import pytest

from tests.repository import ROOT, tracked

# Pronouns without a noun that are left in the code, by place. A number may only get smaller.
LEFT = {"shedder/engine": 59, "shedder/queries": 7, "synopses/intervals": 9, "": 1}

# A relative clause may say "who" of a person: "the operator who runs the server".
_PERSON = r"(?:[Pp]ersons?|[Pp]eople|[Uu]sers?|[Oo]perators?|[Ee]ngineers?|[Aa]uthors?)"
_PRONOUN = (
    r"(?:[Ww]ho|[Ww]hoever|(?:[Aa]ny|[Ee]very|[Nn]o|[Ss]ome)body|(?:[Aa]ny|[Ee]very|[Ss]ome)one)\b"
)
_HEADLESS = re.compile(rf"\b(?:{_PERSON}\s+who\b|({_PRONOUN}))")
_ANYWHERE = re.compile(_PRONOUN)

# Modules whose first line is a question, not a noun phrase. A number may only get smaller.
QUESTIONS = {"allocator": 0, "shedder": 10, "spark_ingest": 0, "synopses": 1}
_QUESTION = re.compile(r'r?"""(?:Who|Whose|What|Which|When|Where|Whether|Why|How)\b')


def headless(text: str) -> list[str]:
    """Find pronouns without a noun in the comments, docstrings and strings of a module's text."""
    if not _ANYWHERE.search(text):
        return []  # Most modules: searching their text is faster than parsing it.
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


@pytest.mark.slow
def test_who_acts_is_a_component():
    found: dict[str, list[str]] = {place: [] for place in LEFT}
    for path in tracked("*.py"):
        name = str(path.relative_to(ROOT))
        if name != "tests/test_prose.py":
            place = next(place for place in LEFT if name.startswith(place))
            found[place] += [f"{name}:{at}" for at in headless(path.read_text())]
    more = {place: its for place, its in found.items() if len(its) > LEFT[place]}
    assert not more


@pytest.mark.parametrize("part", QUESTIONS)
def test_a_module_begins_with_a_noun_phrase(part):
    asking = [str(p) for p in tracked(f"{part}/*.py") if _QUESTION.match(p.read_text())]
    assert len(asking) <= QUESTIONS[part], "\n".join(asking)


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
        ('"""Everybody reads; anyone may write to any one body."""', ["1: Everybody", "1: anyone"]),
    ],
)
def test_a_pronoun_without_a_noun_is_found(text, found):
    assert headless(text) == found
