"""Prose in code: each sentence names the component that acts."""

from __future__ import annotations

import ast
import io
import re
import tokenize

import pytest

from tests.repository import ROOT, tracked

# A relative clause may say "who" of a person: "the operator who runs the server".
_PERSON = r"(?:[Pp]ersons?|[Pp]eople|[Uu]sers?|[Oo]perators?|[Ee]ngineers?|[Aa]uthors?)"
_PRONOUN = (
    r"(?:[Ww]ho|[Ww]hoever|(?:[Aa]ny|[Ee]very|[Nn]o|[Ss]ome)body|(?:[Aa]ny|[Ee]very|[Ss]ome)one)\b"
)
_HEADLESS = re.compile(rf"\b(?:{_PERSON}\s+who\b|({_PRONOUN}))")
_ANYWHERE = re.compile(_PRONOUN)

# Parts whose modules begin with a noun phrase, and functions with a verb; not with a question.
PARTS = ("allocator", "shedder", "spark_ingest", "synopses")
_ASKING = re.compile(r'"""(?:Who|Whose|Which|When|Where|Whether|Why|How)\b')
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
    names = {str(path.relative_to(ROOT)): path for path in tracked("*.py")}
    del names["tests/test_prose.py"]  # Its examples have such pronouns.
    found = [f"{name}:{at}" for name, path in names.items() for at in headless(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("part", PARTS)
def test_a_module_begins_with_a_noun_phrase(part):
    asking = [str(p) for p in tracked(f"{part}/*.py") if _QUESTION.match(p.read_text())]
    assert not asking, "\n".join(asking)


def test_a_function_does_not_begin_with_a_question():
    asking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for part in PARTS
        for path in tracked(f"{part}/*.py")
        if _ASKING.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _ASKING.match(f'"""{ast.get_docstring(node)}')
    ]
    assert not asking, "\n".join(asking)


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
