"""Layouts in CREATE STREAM: what is said is what is meant, and bad numbers are named."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shedder.cql.binding.parse import parse
from shedder.cql.statements.archive_layout import (
    BLOCKS_MAX,
    DEFAULT_LAYOUT,
    Eager,
    Hybrid,
    Layout,
    Lazy,
    Plain,
    layout_from_text,
    layout_text,
)
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.statement import AlterStream, CreateStream
from shedder.errors import BadQuery

CREATE = "CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t "


def created(text: str, params: list[float] | None = None) -> Layout:
    statement = parse(CREATE + text, params)
    assert isinstance(statement, CreateStream)
    assert parse(text_of_stream(statement)) == statement
    return statement.layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("", DEFAULT_LAYOUT),
        ("ARCHIVE plain", Plain()),
        ("ARCHIVE LAZY", Lazy()),
        ("ARCHIVE eager", Eager((0.2, 0.4, 0.6, 0.8))),
        ("ARCHIVE eager(0, 0.5, 0.99)", Eager((0.0, 0.5, 0.99))),
        ("ARCHIVE hybrid", Hybrid(64)),
        ("archive Hybrid(BLOCKS=1)", Hybrid(1)),
        ("ARCHIVE hybrid(blocks=8, block_rows=100) RETAIN INTERVAL '1' DAY", Hybrid(8, 100)),
    ],
)
def test_a_layout_is_what_was_said(text: str, layout: Layout) -> None:
    assert created(text) == layout


def test_numbers_of_layouts_may_be_parameters() -> None:
    assert created("ARCHIVE hybrid(blocks=?)", [16]) == Hybrid(16)
    assert created("ARCHIVE eager(?, ?)", [0.25, 0.5]) == Eager((0.25, 0.5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tape", "no archive layout 'tape'"),
        ("plain(1)", "plain takes no arguments"),
        ("lazy(0.5)", "lazy takes no arguments"),
        ("eager(1)", r"a reduction is in \[0, 1\), not 1.0"),
        ("eager(-0.1)", "not -0.1"),
        ("eager(0.5, 0.5)", "0.5 stands after 0.5"),
        ("eager(0.5, 0.2)", "0.2 stands after 0.5"),
        ("eager(blocks=3)", "eager takes reductions, not 'blocks'"),
        ("eager(" + ", ".join(f"0.{n:02}" for n in range(17)) + ")", "1 to 16 reductions, not 17"),
        ("eager()", "expected"),
        ("hybrid(64)", "hybrid takes blocks="),
        ("hybrid(rows=64)", "'rows'"),
        ("hybrid(blocks=4, blocks=4)", "each once"),
        ("hybrid(blocks=0)", "1 to 1,024 blocks, not 0"),
        (f"hybrid(blocks={BLOCKS_MAX + 1})", "not 1,025"),
        ("hybrid(blocks=1.5)", "blocks takes a whole number, not 1.5"),
        ("hybrid(block_rows=0)", "at least 1 row, not 0"),
        ("hybrid(blocks='a')", "number"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadQuery, match=message):
        parse(f"{CREATE}ARCHIVE {text}")


def test_nan_is_no_reduction() -> None:
    with pytest.raises(BadQuery, match="nan"):
        Eager((math.nan,))
    with pytest.raises(BadQuery):
        parse(f"{CREATE}ARCHIVE eager(?)", [math.nan])
    with pytest.raises(BadQuery):
        parse(f"{CREATE}ARCHIVE hybrid(blocks=?)", [math.nan])


def test_the_layout_of_a_stream_can_be_changed() -> None:
    assert parse("ALTER STREAM s SET ARCHIVE plain;") == AlterStream("s", Plain())
    assert parse('alter stream "s" set archive eager(?)', [0.5]) == AlterStream("s", Eager((0.5,)))


@pytest.mark.parametrize("text", ["ARCHIVE", "LAYOUT plain", "ARCHIVE plain, lazy", "plain"])
def test_other_changes_of_streams_are_refused(text: str) -> None:
    with pytest.raises(BadQuery, match="line 1"):
        parse(f"ALTER STREAM s SET {text}")


LAYOUTS = st.one_of(
    st.just(Plain()),
    st.just(Lazy()),
    st.builds(Hybrid, st.integers(1, BLOCKS_MAX), st.integers(1, 2**40)),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=16, unique=True).map(
        lambda reductions: Eager(tuple(sorted(reductions)))
    ),
)


@given(LAYOUTS)
def test_the_text_of_a_layout_reads_back(layout: Layout) -> None:
    assert layout_from_text(layout_text(layout)) == layout


@pytest.mark.parametrize(
    ("rows", "blocks"), [(1, 1), (32_767, 1), (65_536, 2), (1 << 20, 32), (1 << 22, 64)]
)
def test_a_run_has_as_many_blocks_as_are_worth_it(rows: int, blocks: int) -> None:
    assert Hybrid(64).blocks_of(rows) == blocks


@pytest.mark.parametrize("text", ["", "Plain", "hybrid(blocks=x)", "hybrid(blocks=4", "tape"])
def test_other_texts_are_no_layouts(text: str) -> None:
    with pytest.raises(BadQuery):
        layout_from_text(text)
