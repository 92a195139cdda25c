"""Aggregates as reads of terms: what a group keeps of its values, and what is read of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    OF_PAIRS,
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Call,
    Expression,
    Op,
    as_whole_numbers,
    inputs,
)
from shedder.dataflow.sums.term_kernels import ReadKind, TermKind
from shedder.errors import Unimplemented

_WHOLE = (ColumnType.INTEGER, ColumnType.BIGINT)
_DENOMINATOR_MAX = 10**18  # Of a quantile; a rank is below it.
_QUEUES = {ReadKind.SMALLEST: TermKind.LEAST, ReadKind.LARGEST: TermKind.GREATEST}


class Coding(Enum):
    """A column of values as words of 64 bits."""

    PLAIN = "whole numbers, times, or the bits of doubles"
    ORDERED = "the same, in the order of the values"
    TEXT = "numbers of texts"
    NULLS = "only which are NULL"
    SEQUENCE = "places of the rows by event time and position"


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a column. expression: None with SEQUENCE."""

    expression: Expression | None
    coding: Coding


@dataclass(frozen=True, slots=True)
class Term:
    """What a group keeps of the rows that have no NULL in any of the columns."""

    kept: TermKind
    columns: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class TermRead:
    """What is read of terms. fraction: of a quantile, numerator and denominator."""

    read: ReadKind
    terms: tuple[Term, ...]
    fraction: tuple[int, int] = (0, 1)


def reads_of(aggregate: Aggregate) -> tuple[TermRead, ...]:
    """What an aggregate is computed of; COUNT(*) of nothing but the rows.

    Raises:
      Unimplemented: the aggregate cannot be kept exact while rows leave; the message names it.
    """
    function, argument = aggregate.function, aggregate.argument
    if argument is None:
        return ()
    match function:
        case AggregateFunction.COUNT:
            return (_read(ReadKind.COUNT, TermKind.COUNT, Words(argument, Coding.NULLS)),)
        case AggregateFunction.SUM | AggregateFunction.AVG:
            return (_sum(argument, ()),)
        case AggregateFunction.VAR | AggregateFunction.STDDEV:
            return (_moment(argument, argument, ()),)
        case _ if function in OF_PAIRS:
            return tuple(_of_pairs(aggregate))
        case AggregateFunction.MIN:
            return (_tree(ReadKind.SMALLEST, argument, function),)
        case AggregateFunction.MAX:
            return (_tree(ReadKind.LARGEST, argument, function),)
        case AggregateFunction.QUANTILE:
            assert aggregate.parameter is not None
            exact = Fraction(Decimal(repr(aggregate.parameter)))
            exact = exact.limit_denominator(_DENOMINATOR_MAX)
            terms = _tree(ReadKind.QUANTILE, argument, function).terms
            return (TermRead(ReadKind.QUANTILE, terms, exact.as_integer_ratio()),)
        case AggregateFunction.FIRST | AggregateFunction.LAST:
            read = ReadKind.SMALLEST if function is AggregateFunction.FIRST else ReadKind.LARGEST
            sequence = Words(None, Coding.SEQUENCE)
            return (_read(read, TermKind.TREE, sequence, Words(argument, _payload(argument))),)
        case AggregateFunction.COUNT_DISTINCT:
            return (_read(ReadKind.DISTINCT, TermKind.TREE, _words(argument)),)
        case AggregateFunction.SELF_JOIN_SIZE:
            return (_read(ReadKind.SQUARES, TermKind.SQUARES, _words(argument)),)
        case _ if function in SET_FUNCTIONS:
            left, right = inputs(aggregate)
            either = Call(Op.COALESCE, (left, right), argument.type)
            return tuple(
                _read(ReadKind.DISTINCT, TermKind.TREE, _words(each))
                for each in (left, right, either)
            )
        case _:
            raise Unimplemented(
                f"{function.value} in a standing row query: not in this version; "
                "the other aggregates are exact there"
            )


def in_queues(read: TermRead) -> TermRead:
    """The same read over rows that leave in the order in which they came."""
    kept = _QUEUES.get(read.read)
    if kept is None:
        return read
    return replace(read, terms=tuple(replace(term, kept=kept) for term in read.terms))


def _read(read: ReadKind, kept: TermKind, *columns: Words) -> TermRead:
    return TermRead(read, (Term(kept, columns),))


def _words(argument: Expression) -> Words:
    """Words that are equal where values are."""
    is_text = argument.type is ColumnType.VARCHAR
    return Words(argument, Coding.TEXT if is_text else Coding.ORDERED)


def _tree(read: ReadKind, argument: Expression, function: AggregateFunction) -> TermRead:
    if argument.type is ColumnType.VARCHAR:
        raise Unimplemented(
            f"{function.value} of VARCHAR in a standing row query: not in this version; numbers, "
            "times and truth values have it"
        )
    return _read(read, TermKind.TREE, Words(argument, Coding.ORDERED))


def _payload(argument: Expression) -> Coding:
    return Coding.TEXT if argument.type is ColumnType.VARCHAR else Coding.PLAIN


def _sum(argument: Expression, given: tuple[Words, ...]) -> TermRead:
    words = Words(argument, Coding.PLAIN)
    if argument.type in _WHOLE:
        return _read(ReadKind.WHOLE, TermKind.WHOLE, words, *given)
    return _read(ReadKind.DOUBLE, TermKind.DOUBLE, words, *given)


def _moment(first: Expression, second: Expression, given: tuple[Words, ...]) -> TermRead:
    kept = TermKind.WHOLE_PRODUCT if first.type in _WHOLE else TermKind.DOUBLE_PRODUCT
    columns = Words(first, Coding.PLAIN), Words(second, Coding.PLAIN)
    product = Term(kept, (*columns, *given))
    sums = (_sum(each, given).terms[0] for each in (first, second))
    return TermRead(ReadKind.MOMENT, (product, *sums))


def _of_pairs(aggregate: Aggregate) -> Iterator[TermRead]:
    """Sums over the rows in which neither argument is NULL."""
    first, second = aggregate.argument, aggregate.second
    assert first is not None
    assert second is not None
    whole = as_whole_numbers(first), as_whole_numbers(second)
    if all(each.type in _WHOLE for each in whole):
        first, second = whole
    given = tuple(Words(each, Coding.NULLS) for each in (first, second))
    yield _moment(first, second, given)
    if aggregate.function is AggregateFunction.CORR:
        yield _moment(first, first, given)
    if aggregate.function not in (AggregateFunction.COVAR_POP, AggregateFunction.COVAR_SAMP):
        yield _moment(second, second, given)
    if aggregate.function is AggregateFunction.REGR_INTERCEPT:
        yield _sum(first, given)
        yield _sum(second, given)
