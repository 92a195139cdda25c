"""ON OVERLOAD: what is understood, what is said of mistakes, and that its text reads back."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.overload_policy import THINS, OnOverload, Policy
from shedder.cql.statements.statement import AlterOverload, CreateStream
from shedder.errors import BadQuery

STREAM = "CREATE STREAM s (ts TIMESTAMP, k VARCHAR, Worth DOUBLE) TIMESTAMP BY ts"
POLICIES = {
    "THIN": THINS,
    "BLOCK": OnOverload(Policy.BLOCK),
    "DROP": OnOverload(Policy.DROP),
    "drop oldest": OnOverload(Policy.DROP_OLDEST),
    "DROP LEAST worth": OnOverload(Policy.DROP_LEAST, "Worth"),
}


@pytest.mark.parametrize(("said", "meant"), POLICIES.items())
def test_a_stream_has_the_policy_that_is_said_and_its_text_says_it_again(said, meant):
    made = parse(f"{STREAM} ON OVERLOAD {said} RETAIN FOREVER")
    assert isinstance(made, CreateStream)
    assert made.on_overload == meant
    assert parse(text_of_stream(made)) == made


def test_without_a_word_work_is_thinned_and_the_text_does_not_mention_it():
    made = parse(STREAM)
    assert isinstance(made, CreateStream)
    assert made.on_overload == THINS
    assert "OVERLOAD" not in text_of_stream(made)


def test_a_policy_can_be_changed():
    assert parse("ALTER STREAM s SET ON OVERLOAD DROP") == AlterOverload(
        "s", OnOverload(Policy.DROP)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ON OVERLOAD PANIC", "expected THIN, BLOCK, DROP"),
        ("ON OVERLOAD", "expected THIN, BLOCK, DROP"),
        ("ON OVERLOAD DROP LEAST", "a column of numbers"),
        ("ON OVERLOAD DROP LEAST k", "it is VARCHAR"),
        ("ON OVERLOAD DROP LEAST w", "no such column; there are ts, k, Worth"),
        ("ON OVERLOAD DROP ON OVERLOAD THIN", "each once"),
    ],
)
def test_mistakes_say_what_would_be_right(text, says):
    with pytest.raises(BadQuery, match=says):
        parse(f"{STREAM} {text}")
