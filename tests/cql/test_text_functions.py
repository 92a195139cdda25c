"""Functions that take parts of texts: random texts and patterns, and constants that are refused."""

from __future__ import annotations

import random
import re

import duckdb
import pyarrow as pa
import pytest

from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import Expression
from shedder.cql.expressions.text_functions import NUMBER_MAX
from shedder.cql.expressions.text_patterns import REPEATS_MAX
from shedder.cql.sql.exact_query import SqlDialect, render
from shedder.errors import ShedderError
from tests.cql.exact_answers import rows_of
from tests.cql.trees import bound_query
from tests.scale import scaled
from tests.seeds import seed

ALPHABET = ("a", "b", "é", "😀", "/", "&", "-", "7", " ", "\n", "'", "\\", "")
ATOMS = ("a", "b", "é", "😀", ".", "[^a]", "[a-b7]", "\\d", "\\W", "\\s", "\\/", "[é&-]", "-")


def expression_of(text: str) -> Expression:
    argument = bound_query(f"SELECT COUNT({text}) FROM stream").aggregates[0].argument
    assert argument is not None
    return argument


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def texts(dice: random.Random, count: int) -> list[str | None]:
    drawn = ("".join(dice.choices(ALPHABET, k=dice.randrange(9))) for _ in range(count - 2))
    return [None, "", *drawn]


def pattern(dice: random.Random) -> str:
    """A pattern with one or two groups, in words that Python has, too."""

    def piece(atom: str) -> str:
        return atom + dice.choice(("", "", "", "+", "*?", "?", "{1,2}"))

    def sequence() -> str:
        return "".join(piece(dice.choice(ATOMS)) for _ in range(dice.randrange(1, 3)))

    group = f"({sequence()}|{sequence()})" if dice.random() < 0.5 else f"({sequence()})"
    second = f"({dice.choice(ATOMS)}*)" if dice.random() < 0.3 else ""
    repeated = f"(?:{dice.choice(ATOMS)}{dice.choice(ATOMS)})" + dice.choice(("", "+", "?"))
    parts = [group, second, repeated if dice.random() < 0.3 else ""]
    start, end = dice.choice(("", "", "^")), dice.choice(("", "", "", "$"))
    return f"{start}{''.join(parts)}{end}"


def found_by_python(text: str | None, written: str, group: int) -> str | None:
    """`\\d`, `\\W` and `\\s` are of ASCII, and `$` is the end alone."""
    if text is None:
        return None
    match = re.search(written.replace("$", "\\Z"), text, re.ASCII)
    return "" if match is None else match[group] or ""


def split_by_python(text: str | None, separator: str, number: int) -> str | None:
    if text is None:
        return None
    parts = text.split(separator)
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


def check(given: list[str | None], call: str, expected: list[str | None]) -> None:
    """Compare both evaluations of a call over the column `s`."""
    batch, node = rows_of(s=pa.array(given, pa.string())), expression_of(call)
    assert evaluate(node, batch).to_pylist() == expected, call
    connection = duckdb.connect(config={"threads": 1})
    connection.register("stream", pa.Table.from_batches([batch]))
    sql = f"SELECT {render(node, SqlDialect.DUCKDB)} FROM stream"
    assert [value for (value,) in connection.sql(sql).fetchall()] == expected, call


def test_parts_of_random_texts_are_those_of_python() -> None:
    dice = random.Random(seed("texts"))
    given = texts(dice, 60)
    for _ in range(scaled(25, 400)):
        written = pattern(dice)
        group = dice.randrange(written.replace("(?:", "").count("(") + 1)
        expected = [found_by_python(text, written, group) for text in given]
        check(given, f"REGEXP_EXTRACT(s, {quoted(written)}, {group})", expected)
        separator, number = dice.choice(("a", "/", "é", "ab", "😀")), dice.choice((1, 2, 3, -1, -2))
        expected = [split_by_python(text, separator, number) for text in given]
        check(given, f"SPLIT_PART(s, {quoted(separator)}, {number})", expected)
        start, length = dice.randrange(5), dice.randrange(5)
        expected = [None if text is None else text[start : start + length] for text in given]
        check(given, f"SUBSTRING(s, {start + 1}, {length})", expected)
        old, new = dice.choice((("a", ""), ("é", "b"), ("ab", "\\1"), ("😀", "''")))
        expected = [None if text is None else text.replace(old, new) for text in given]
        check(given, f"REPLACE(s, {quoted(old)}, {quoted(new)})", expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("SUBSTRING(s, 0)", "the start is from 1 to 2,147,483,647, not 0"),
        ("SUBSTRING(s, -1)", "the start is from 1"),
        ("SUBSTRING(s, 1, -1)", "the length is from 0"),
        (f"SUBSTRING(s, {NUMBER_MAX + 1})", "not 2147483648"),
        ("SUBSTRING(s, l)", "write SUBSTRING.*constants"),
        ("SUBSTRING(s, TRUE)", "the start is from 1"),
        ("SUBSTRING(s)", "write SUBSTRING"),
        ("SUBSTRING(l, 1)", "SUBSTRING takes VARCHAR"),
        ("SPLIT_PART(s, '', 1)", "the separator of SPLIT_PART is empty"),
        ("SPLIT_PART(s, '/', 0)", "the number is from 1"),
        ("SPLIT_PART(s, t, 1)", "write SPLIT_PART"),
        ("REPLACE(s, '', 'a')", "it is empty"),
        ("REPLACE(s, 'a', 'é')", "'é' has 2, 'a' has 1"),
        ("REGEXP_EXTRACT(s, t)", "write REGEXP_EXTRACT"),
        ("REGEXP_EXTRACT(s, '(a)', 2)", "has 1 groups, and no group 2"),
        ("REGEXP_EXTRACT(s, '(a*)*')", "at character 5: what is repeated may be empty"),
        ("REGEXP_EXTRACT(s, 'a**')", r"at character 3: \* repeats nothing here"),
        ("REGEXP_EXTRACT(s, '(?i)a')", r"of the brackets with \(\? there is \(\?: \) alone"),
        ("REGEXP_EXTRACT(s, '[a')", "a set is not closed"),
        ("REGEXP_EXTRACT(s, '[]a]')", "a set has a character"),
        ("REGEXP_EXTRACT(s, '[b-a]')", "a range goes from a character to one that is not before"),
        ("REGEXP_EXTRACT(s, '(a')", "a bracket is not closed"),
        ("REGEXP_EXTRACT(s, 'a)')", "a bracket is closed that is not open"),
        ("REGEXP_EXTRACT(s, '\\b')", "a backslash stands before a mark"),
        ("REGEXP_EXTRACT(s, 'a\\')", "a backslash stands before a mark"),
        ("REGEXP_EXTRACT(s, 'a{2,1}')", "counts rise"),
        (f"REGEXP_EXTRACT(s, 'a{{{REPEATS_MAX + 1}}}')", "to at most 1000"),
        ("REGEXP_EXTRACT(s, 'a{x}')", "braces hold counts"),
        (f"REGEXP_EXTRACT(s, '{'(' * 40}a{')' * 40}')", "brackets nest at most 32 deep"),
        ("REGEXP_EXTRACT(s, '(?:(?:a{1000}){1000}){1000}')", "is too large"),
        ("STRFTIME(ts, '%q')", "STRFTIME takes %Y %m %d %H %M %S %j and %%, not '%q'"),
        ("STRFTIME(ts, '%')", "not '%'"),
        ("STRFTIME(ts, 'now')", "in its format, not 'now'"),
        (f"STRFTIME(ts, '%Y{' ' * 63}')", "a format of 65 characters"),
        ("STRFTIME(l, '%Y')", "STRFTIME takes TIMESTAMP"),
        ("SPLIT_INDEX(s, '/', 1)", "SPLIT_PART"),
    ],
)
def test_constants_that_a_function_does_not_take_are_shown(call: str, message: str) -> None:
    with pytest.raises(ShedderError, match=message):
        expression_of(call)
