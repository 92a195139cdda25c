"""Binding of CREATE VIEW and CREATE QUERY ... AS INSERT INTO: queries whose rows are a stream."""

from __future__ import annotations

from dataclasses import replace

from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.relational_clauses import relational_select
from shedder.cql.binding.stream_defaults import is_relation
from shedder.cql.binding.window_checks import positive_us
from shedder.cql.expressions.literals import Bindings
from shedder.cql.grammar.parse_nodes import RawRelational, RawSelect
from shedder.cql.grammar.view_grammar import RawCreateInsert, RawCreateView
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.relational_text import EVERY_TICK_US, text_of_query
from shedder.cql.statements.relational_tree import Query, SelectQuery, StreamSyntax, named_relations
from shedder.cql.statements.statement import CreateInsert, CreateView, RangeWindow
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText
from shedder.cql.text.unsupported import later


def created_view(
    raw: RawCreateView, source: SourceText, bindings: Bindings, limits: Limits
) -> CreateView:
    """The CREATE VIEW that was said.

    Raises:
      BadQuery: with the place. Unimplemented.
    """
    retain_us = None
    if raw.retain is not None:
        translator = Translator(source, bindings, limits)
        retain_us = positive_us(raw.retain, "RETAIN", translator, source)
    select = _stream_of(raw.select, raw.start, source, bindings, limits)
    return CreateView(raw.name, select, retain_us, raw.if_not_exists)


def created_insert(
    raw: RawCreateInsert, source: SourceText, bindings: Bindings, limits: Limits
) -> CreateInsert:
    """The standing INSERT that was said.

    Raises:
      BadQuery: with the place. Unimplemented.
    """
    select = _stream_of(raw.select, raw.start, source, bindings, limits)
    return CreateInsert(raw.name, raw.stream, raw.columns, select, raw.if_not_exists)


def _stream_of(
    raw: RawSelect | RawRelational,
    start: int,
    source: SourceText,
    bindings: Bindings,
    limits: Limits,
) -> RelationalSelect:
    """The query, with RSTREAM where its rows are those of each slide.

    A window in it is that of a row query: without SLIDE it is of every microsecond.
    """
    if isinstance(raw, RawSelect):
        plain = RawSelect(raw.select, None, None, None, None, None)
        if raw != plain:
            raise later("clauses of approximate answers in a query whose rows become a stream")
        raw = RawRelational(raw.select)
    if raw.sheds:
        raise later("ON OVERLOAD SHED in a query whose rows become a stream")
    if raw.confidence is not None:
        raise later("CONFIDENCE in a query whose rows become a stream")
    select = relational_select(raw, source, bindings, limits)
    query = select.query
    assert isinstance(query, Query)
    if query.order or query.limit is not None or query.offset:
        raise source.error(
            "ORDER BY, LIMIT and OFFSET have no meaning here: the rows become a stream, in the "
            "order of event time",
            start,
        )
    if not is_relation(query) or (isinstance(query, SelectQuery) and query.stream is not None):
        return select
    if not isinstance(query, SelectQuery) or not _slides(query):
        raise source.error(
            "a query with aggregates is a relation, and its rows are to become a stream: give its "
            "windows one SLIDE, for all rows as of each slide, or write ISTREAM(...), DSTREAM(...) "
            "or RSTREAM(...) around its select list",
            start,
        )
    query = replace(query, stream=StreamSyntax.RSTREAM)
    return replace(select, query=query, text=text_of_query(query))


def _slides(query: Query) -> bool:
    """Return whether all windows have one slide."""
    windows = [each.window for each in named_relations(query) if each.window is not None]
    slides = {
        each.window.slide_us if isinstance(each.window, RangeWindow) else EVERY_TICK_US
        for each in windows
    }
    return len(slides) == 1 and EVERY_TICK_US not in slides
