"""HISTOGRAM(x, edges): what it is made of, its text, what is refused."""

from __future__ import annotations

import pytest

from shedder.cql.binding.parse import parse
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.expressions.histograms import counts_of, edges_of, value_of
from shedder.cql.statements.statement import Select
from shedder.errors import BadQuery, ShedderError, TypeMismatch
from tests.cql.trees import bound_query


def edges(call: str) -> list[object]:
    node = bound_query(f"SELECT {call} AS h FROM stream").outputs[0].expression
    assert len(counts_of(node)) == len(edges_of(node)) + 1
    return [edge.value for edge in edges_of(node)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("HISTOGRAM(l, [0, 10, 100])", [0, 10, 100]),
        ("HISTOGRAM(l, ARRAY[5])", [5]),
        ("HISTOGRAM(l, [0, 2.5])", [0.0, 2.5]),
        ("HISTOGRAM(d, [0, 10])", [0.0, 10.0]),
        ("HISTOGRAM(l, 4, 0, 100)", [0, 25, 50, 75, 100]),
        ("HISTOGRAM(l, 3, 0, 1)", [0.0, 1 / 3, 2 / 3, 1.0]),
        ("HISTOGRAM(d, 10, 0, 1)", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ("HISTOGRAM(d, 2, -1.5, 1.5)", [-1.5, 0.0, 1.5]),
        ("HISTOGRAM(ts, ['1970-01-01 00:00:01'])", [1_000_000]),
        ("HISTOGRAM(s, ['b', 'x'])", ["b", "x"]),
    ],
)
def test_edges_are_the_constants_that_were_said_or_the_nearest_to_equal_widths(
    call: str, expected: list[object]
) -> None:
    assert edges(call) == expected


@pytest.mark.parametrize(
    ("call", "canonical"),
    [
        ("HISTOGRAM(x, 2, 0, 10)", "HISTOGRAM(x, [0, 5, 10])"),
        ("histogram(x + 1, [1, 2.5])", "HISTOGRAM(x + 1, [1.0, 2.5])"),
        (
            "HISTOGRAM(x, [1]) FILTER (WHERE y)",
            "HISTOGRAM(CASE WHEN y THEN x ELSE NULL END, [1])",
        ),
    ],
)
def test_the_text_gives_the_same_tree_again(call: str, canonical: str) -> None:
    first = parse(f"SELECT {call} AS h FROM s")
    assert isinstance(first, Select)
    node = first.outputs[0].expression
    assert text_of(node) == canonical
    again = parse(first.text)
    assert isinstance(again, Select)
    assert again.outputs[0].expression == node
    assert value_of(node) == value_of(again.outputs[0].expression)


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELECT HISTOGRAM(l, 20) FROM stream", BadQuery, "would not be those of the next window"),
        ("SELECT HISTOGRAM(l) FROM stream", BadQuery, r"HISTOGRAM\(x, \[0, 10, 100\]\)"),
        ("SELECT HISTOGRAM(l, []) FROM stream", BadQuery, "edges are constants"),
        ("SELECT HISTOGRAM(l, [d]) FROM stream", BadQuery, "edges are constants"),
        ("SELECT HISTOGRAM(l, [1, NULL]) FROM stream", BadQuery, "edges are constants"),
        (
            "SELECT HISTOGRAM(d, [1, 'a']) FROM stream",
            BadQuery,
            r"line 1, column 8: edges .* are of one type, .* numbers \(1\) and texts \('a'\)",
        ),
        ("SELECT HISTOGRAM(l, [1, TRUE]) FROM stream", BadQuery, r"truths \(True\)"),
        ("SELECT HISTOGRAM(d, ['a', 'b']) FROM stream", TypeMismatch, "'a' is no DOUBLE"),
        ("SELECT HISTOGRAM(l, ['a', 'b']) FROM stream", TypeMismatch, "'a' is no BIGINT"),
        ("SELECT HISTOGRAM(l, [1, 1]) FROM stream", BadQuery, "1 stands before 1"),
        ("SELECT HISTOGRAM(ts, ['2026-02-01', '2026-01-01']) FROM stream", BadQuery, "ascend"),
        ("SELECT HISTOGRAM(l, 0, 0, 1) FROM stream", BadQuery, "1 to 100 buckets, not 0"),
        ("SELECT HISTOGRAM(l, 1000, 0, 1) FROM stream", BadQuery, "not 1,000"),
        ("SELECT HISTOGRAM(l, 5, 1, 1) FROM stream", BadQuery, "a range that is not empty"),
        ("SELECT HISTOGRAM(b, [1]) FROM stream", TypeMismatch, "BOOLEAN"),
        ("SELECT HISTOGRAM(l, [1]) + 1 FROM stream", TypeMismatch, "stands alone"),
        ("SELECT COUNT(*) FROM stream ORDER BY HISTOGRAM(l, [1])", TypeMismatch, "no order"),
        ("SELECT COUNT(*) FROM stream HAVING HISTOGRAM(l, [1])", TypeMismatch, "a list"),
    ],
)
def test_what_is_no_histogram_is_refused_with_words(
    query: str, error: type[ShedderError], words: str
) -> None:
    with pytest.raises(error, match=words):
        bound_query(query)
