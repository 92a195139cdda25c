"""Where statements end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shedder.cli.script import is_complete, placed, statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ;\n", []),
        ("SELECT 1", ["SELECT 1"]),
        ("a; b ;c", ["a", "b", "c"]),
        ("SELECT ';' ; x", ["SELECT ';'", "x"]),
        ("SELECT 'it''s; fine'; x", ["SELECT 'it''s; fine'", "x"]),
        ('SELECT "a;b"; x', ['SELECT "a;b"', "x"]),
        ("a -- not; here\n; b", ["a -- not; here", "b"]),
        ("a /* not; here */; b", ["a /* not; here */", "b"]),
        ("-- only a comment;\n", []),
        ("a - b / c; d", ["a - b / c", "d"]),
    ],
)
def test_semicolons_outside_of_quotes_and_comments_end_a_statement(text, expected):
    assert list(statements(text)) == expected


def test_each_statement_knows_the_line_it_begins_in():
    text = "a;\n\n  b\n c; d\n;-- not this one\n;\ne"
    assert list(placed(text)) == [(1, "a"), (3, "b\n c"), (4, "d"), (7, "e")]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; ", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT /* ;", False),
        ("SELECT 1; -- done", True),
    ],
)
def test_a_text_is_complete_when_its_last_statement_is(text, complete):
    assert is_complete(text) is complete


@given(st.text(alphabet="ab ;'\"-/*\n", max_size=40))
@example("b;/*a")
def test_no_text_is_lost_or_breaks_the_splitter(text):
    joined = "".join(statements(text))
    letters = Counter(c for c in text if c in "ab")
    assert Counter(c for c in joined if c in "ab") <= letters  # Those of comments may be left out.
    if "--" not in text and "/*" not in text:
        assert Counter(c for c in joined if c in "ab") == letters
    assert all(statement.strip() == statement != "" for statement in statements(text))
