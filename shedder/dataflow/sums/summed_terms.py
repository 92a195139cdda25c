"""Terms of aggregates as arrays for the kernel, rows as their words, and results as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate
from shedder.cql.expressions.expression import (
    SET_FUNCTIONS,
    Aggregate,
    AggregateFunction,
    Column,
    walk,
)
from shedder.dataflow.changes import ChangeBatch, Int64s
from shedder.dataflow.fixed_column import plain_values
from shedder.dataflow.key_directory import KeyDirectory, canonical
from shedder.dataflow.pending_events import PendingEvents
from shedder.dataflow.sums.aggregate_reads import (
    Coding,
    Term,
    TermRead,
    Words,
    in_queues,
    reads_of,
)
from shedder.dataflow.sums.sum_kernels import NOWHERE, Layout, ResultRows
from shedder.dataflow.sums.term_kernels import (
    BY,
    CACHED,
    FIRST,
    KEPT,
    OF_NODES,
    OR,
    READ,
    READ_COLUMNS,
    RESULT_WORDS,
    SECOND,
    TERM_COLUMNS,
    ReadKind,
    cached_words_of,
    words_of,
)
from shedder.dataflow.sums.value_trees import PAYLOAD, TERM, VALUE, Nodes
from shedder.errors import Unimplemented

Names = tuple[frozenset[str], ...]
ResultWords = tuple[Int64s, Int64s, Int64s]
"""The count and the two words of a read in some rows; those that are not needed are empty."""

_COLUMNS_MAX = 62  # Bits for NULLs in a word.
_PURGE_TEXTS_MIN = 4096  # Fewer texts are not searched for those that have left.
_LINE = 8  # Words of a cache line.
_POSITIVE = np.iinfo(np.int64).max
_OF_ONE_WORD = (
    AggregateFunction.SUM,
    AggregateFunction.MIN,
    AggregateFunction.MAX,
    AggregateFunction.QUANTILE,
    AggregateFunction.COUNT_DISTINCT,
    AggregateFunction.SELF_JOIN_SIZE,
)


class SummedTerms:
    """The different terms of aggregates over one input, or over the pairs of two.

    layout: of the kernel. node_terms: how many terms have their values in nodes.
    """

    def __init__(
        self,
        aggregates: Sequence[Aggregate],
        names: Names,
        *,
        is_scalar: bool = False,
        in_order: bool = False,
    ) -> None:
        """The terms of some aggregates.

        Args:
          aggregates: any number.
          names: the columns of each input.
          is_scalar: there is one group.
          in_order: rows leave in the order in which they come.

        Raises:
          Unimplemented: an aggregate cannot be kept, or there are too many.
        """
        self._in_order = in_order
        self._reads = list(dict.fromkeys(it for each in aggregates for it in self._reads_of(each)))
        terms = list(dict.fromkeys(term for read in self._reads for term in read.terms))
        self._columns: list[list[Words]] = []
        self._texts = KeyDirectory(pa.schema([("0", pa.string())]))
        self._serials = np.zeros(1, np.int64)  # Of the ids of texts; ascending.
        self._next_serial = 1
        self._purge_at = _PURGE_TEXTS_MIN
        self._sequence = 0
        self.node_terms = sum(term.kept in OF_NODES for term in terms)
        self._group_width, self._partner_width, right_at = 1, 0, 0
        places: dict[Term, int] = {}
        rows: list[list[int]] = []
        for side in range(len(names)):
            right_at = self._partner_width
            self._partner_width += 1
            self._columns.append([])
            for term in (each for each in terms if _side(each, names) == side):
                places[term] = len(rows)
                rows.append(self._row(term, side))
        assert len(rows) == len(terms)
        if any(len(columns) > _COLUMNS_MAX for columns in self._columns):
            raise Unimplemented(
                f"aggregates of more than {_COLUMNS_MAX} expressions in a standing row query: not "
                "in this version; divide them among queries"
            )
        reads = self._read_rows(places)
        columns = self._result_columns(aggregates)
        self._result_count = int(np.count_nonzero(columns != NOWHERE))
        self.layout = Layout(
            np.array(rows, np.uint64).reshape(len(rows), TERM_COLUMNS),
            reads,
            is_scalar,
            _padded(self._group_width),
            _padded(self._partner_width) if len(names) > 1 else 0,
            right_at,
            columns,
        )

    def _read_rows(self, places: dict[Term, int]) -> NDArray[np.uint64]:
        """The numbers of all reads, in the order of the kernel's columns. places: of the terms."""
        reads = np.zeros((len(self._reads), READ_COLUMNS), np.uint64)
        for row, read in zip(reads, self._reads, strict=True):
            numbers = [places[term] for term in read.terms]
            row[: 1 + len(numbers)] = [read.read, *numbers]
            if read.read is ReadKind.QUANTILE:
                row[BY], row[OR] = read.fraction
            row[CACHED] = self._group_width
            self._group_width += cached_words_of(read.read)
        return reads

    def _result_columns(self, aggregates: Sequence[Aggregate]) -> NDArray[np.uint64]:
        """The columns of the words of a result that some aggregate needs, as `Layout.columns`."""
        needed = np.zeros(self.result_words, np.bool_)
        for each in aggregates:
            needed[0] |= each.argument is None
            for read in self._reads_of(each):
                first = 1 + RESULT_WORDS * self._reads.index(read)
                needed[[first + word for word in _needed_words(each)]] = True
        columns = np.cumsum(needed) - 1
        return np.where(needed, columns.astype(np.uint64), NOWHERE)

    def _row(self, term: Term, side: int) -> list[int]:
        """The numbers of a term, in the order of the kernel's columns."""
        columns = self._columns[side]
        columns.extend(each for each in dict.fromkeys(term.columns) if each not in columns)
        numbers = [columns.index(each) for each in term.columns]
        nulls = sum(1 << number for number in set(numbers))
        second = numbers[min(1, len(numbers) - 1)]
        at, partner_at = self._group_width, self._partner_width
        self._group_width += words_of(term.kept)
        self._partner_width += words_of(term.kept)
        return [term.kept, nulls, 1 + numbers[0], 1 + second, side, at, partner_at]

    @property
    def result_words(self) -> int:
        """Words of the result of a group."""
        return 1 + RESULT_WORDS * len(self._reads)

    @property
    def result_shape(self) -> tuple[int, int]:
        """Columns of the results that aggregates need, and number of reads."""
        return self._result_count, len(self._reads)

    @property
    def width(self) -> int:
        """Words of a row of either side."""
        widest = max(map(len, self._columns))
        return 1 + widest if widest else 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the texts."""
        return self._texts.size_bytes + self._serials.nbytes

    def values(self, side: int, changes: ChangeBatch) -> Int64s:
        """The words of the rows of a side, int64 [rows, width].

        Bit i of the first word is set where column i is NULL.
        """
        values = np.zeros((len(changes), self.width), np.int64)
        for place, words in enumerate(self._columns[side]):
            if words.expression is None:
                order = np.argsort(changes.ts_us, kind="stable")
                values[order, 1 + place] = self._sequence + np.arange(len(changes))
                self._sequence += len(changes)
                continue
            column = canonical(evaluate(words.expression, changes.columns))
            if column.null_count:
                values[:, 0] |= np.asarray(column.is_null()).astype(np.int64) << place
            match words.coding:
                case Coding.TEXT:
                    values[:, 1 + place] = self._serials_of(column)
                case Coding.PLAIN:
                    values[:, 1 + place] = _bits(column)
                case Coding.ORDERED:
                    values[:, 1 + place] = _ordered(_bits(column), column.type)
        return values

    def column(self, aggregate: Aggregate, rows: ResultRows) -> Any:
        """Return the values of an aggregate in some rows."""
        if aggregate.argument is None:
            return pa.array(rows.results[self.layout.columns[0]])
        numbers = [self._reads.index(read) for read in self._reads_of(aggregate)]
        made = [self._words_of(number, rows) for number in numbers]
        counts, first, second = made[0]
        nulls = rows.nulls[numbers[0]].view(np.bool_)
        match aggregate.function:
            case AggregateFunction.COUNT:
                return pa.array(counts)
            case AggregateFunction.COUNT_DISTINCT:
                return pa.array(first)
            case AggregateFunction.SELF_JOIN_SIZE:
                return pa.array(first.astype(np.float64))
            case AggregateFunction.SUM | AggregateFunction.AVG:
                return _sums(aggregate, made[0], nulls)
            case AggregateFunction.MIN | AggregateFunction.MAX | AggregateFunction.QUANTILE:
                assert aggregate.argument.type is not None
                return _plain(_ordered(first, aggregate.argument.type.arrow), nulls, aggregate)
            case AggregateFunction.FIRST | AggregateFunction.LAST:
                if aggregate.argument.type is ColumnType.VARCHAR:
                    return self._text_of(np.where(nulls, 0, second))
                return _plain(second, nulls, aggregate)
            case AggregateFunction.DISTINCT_BOTH | AggregateFunction.DISTINCT_ONLY:
                both = first + made[1][1] - made[2][1]
                is_both = aggregate.function is AggregateFunction.DISTINCT_BOTH
                return pa.array(both if is_both else first - both)
            case AggregateFunction.JACCARD:
                either = made[2][1]
                both = first + made[1][1] - either
                return pa.array(both / np.maximum(either, 1), mask=either == 0)
            case _:
                return _moments(aggregate, made)

    def forget_texts(self, pending: PendingEvents, nodes: Nodes, groups: Int64s) -> None:
        """Forget the texts that no event, tree or result has, once they are half of all.

        groups: their words, [groups, words].
        """
        size = self._texts.size
        if size <= self._purge_at:
            return
        columns = [
            1 + place for place, words in enumerate(self._columns[0]) if words.coding is Coding.TEXT
        ]
        serials = [pending.values_of(columns)]
        for number, term in enumerate(self.layout.terms):
            for column, of in ((FIRST, VALUE), (SECOND, PAYLOAD)):
                if term[KEPT] in OF_NODES and term[column] in columns:
                    serials.append(nodes[nodes[:, TERM] == number, of])
        ends = (ReadKind.SMALLEST, ReadKind.LARGEST)
        read_at = [row[CACHED] for row in self.layout.reads if row[READ] in ends]
        serials.extend(groups[:, at + 1] for at in read_at)
        used = np.isin(self._serials[:size], np.concatenate(serials))
        used[0] = False
        kept = np.flatnonzero(used)
        if 2 * len(kept) < size:
            self._texts.keep(kept)
            self._serials = np.concatenate([[0], self._serials[kept]])
        self._purge_at = max(_PURGE_TEXTS_MIN, 2 * self._texts.size)

    def _words_of(self, read: int, rows: ResultRows) -> ResultWords:
        at = 1 + RESULT_WORDS * read
        columns = self.layout.columns[at : at + RESULT_WORDS].tolist()
        none = np.empty(0, np.int64)
        count, first, second = (none if it == NOWHERE else rows.results[it] for it in columns)
        return count, first, second

    def _reads_of(self, aggregate: Aggregate) -> tuple[TermRead, ...]:
        reads = reads_of(aggregate)
        return tuple(map(in_queues, reads)) if self._in_order else reads

    def _serials_of(self, texts: Any) -> Int64s:
        """Numbers of texts, which a text has until it is forgotten; NULL is 0."""
        ids = self._texts.assign([texts])
        more = self._texts.size - len(self._serials)
        fresh = self._next_serial + np.arange(more)
        self._next_serial += more
        self._serials = np.concatenate([self._serials, fresh])
        return self._serials[ids]

    def _text_of(self, serials: Int64s) -> Any:
        return self._texts.keys(np.searchsorted(self._serials, serials)).column(0)


def _padded(words: int) -> int:
    """Return a number of words that puts a row into as few cache lines as possible."""
    return next((size for size in (1, 2, 4) if words <= size), -(-words // _LINE) * _LINE)


def of_pairs(aggregates: Sequence[Aggregate], names: Names) -> bool:
    """Return whether the aggregates can be computed over pairs that are not made.

    names: the columns of both sides.
    """
    terms = [term for each in aggregates for read in reads_of(each) for term in read.terms]
    return all(term.kept not in OF_NODES and _side(term, names) is not None for term in terms)


def _needed_words(aggregate: Aggregate) -> tuple[int, ...]:
    """Return which of a count and two words `SummedTerms.column` takes of each read."""
    function = aggregate.function
    match function:
        case AggregateFunction.COUNT:
            return (0,)
        case AggregateFunction.FIRST | AggregateFunction.LAST:
            return (2,)
        case _ if function in SET_FUNCTIONS or function in _OF_ONE_WORD:
            return (1,)
        case _:
            return (0, 1, 2)


def _side(term: Term, names: Names) -> int | None:
    """The input that has all columns of a term."""
    if len(names) == 1:
        return 0
    expressions = [each.expression for each in term.columns if each.expression is not None]
    read = {node.name for each in expressions for node in walk(each) if isinstance(node, Column)}
    return next((side for side, known in enumerate(names) if read <= known), None)


def _bits(column: Any) -> Int64s:
    """Values as whole numbers; doubles by their bits."""
    values = plain_values(column)
    if values.dtype == np.float64:
        return values.view(np.int64)
    return values.astype(np.int64, copy=False)


def _ordered(bits: Int64s, kind: pa.DataType) -> Int64s:
    """Bits of doubles as whole numbers in the order of the doubles, and back; others unchanged."""
    if not pa.types.is_floating(kind):
        return bits
    return bits ^ ((bits >> 63) & _POSITIVE)


def _plain(bits: Int64s, nulls: NDArray[np.bool_], aggregate: Aggregate) -> Any:
    """The values that words stand for; NULL where there are none."""
    assert aggregate.type is not None
    kind = aggregate.type.arrow
    if pa.types.is_floating(kind):
        return pa.array(bits.view(np.float64), mask=nulls)
    if pa.types.is_date32(kind):
        return pa.array(bits.astype(np.int32), pa.int32(), mask=nulls).view(kind)
    array: Any = pa.array(bits, pa.int64(), mask=nulls)
    return array.view(kind) if pa.types.is_timestamp(kind) else array.cast(kind)


def _sums(aggregate: Aggregate, made: ResultWords, nulls: NDArray[np.bool_]) -> Any:
    """SUM and AVG. made: counts and words. nulls: also of sums beyond 64 bits."""
    counts, first, second = made
    assert aggregate.argument is not None
    if aggregate.argument.type is ColumnType.DOUBLE:
        sums: Any = first.view(np.float64)
        nulls = nulls | np.isnan(sums)
    elif aggregate.function is AggregateFunction.SUM:
        return pa.array(first, mask=nulls if nulls.any() else None)
    else:
        sums, nulls = _exact(first, second), counts == 0
    if aggregate.function is AggregateFunction.AVG:
        sums = sums / np.maximum(counts, 1)
    return pa.array(sums.astype(np.float64), mask=nulls)


def _exact(low: Int64s, high: Int64s) -> Any:
    """Return sums of whole numbers, rounded once if they have more than 64 bits."""
    return high.astype(np.longdouble) * 2.0**64 + low


def _moments(aggregate: Aggregate, made: Sequence[ResultWords]) -> Any:
    """Functions of covariances of the population; NULL where these are beyond DOUBLE."""
    counts = made[0][0]
    moments = [each[1].view(np.float64) for each in made]
    nulls = counts < 1
    with np.errstate(all="ignore"):
        match aggregate.function:
            case AggregateFunction.VAR | AggregateFunction.STDDEV | AggregateFunction.COVAR_SAMP:
                values = made[0][2].view(np.float64)
                nulls = counts < 2
                if aggregate.function is AggregateFunction.STDDEV:
                    values = np.sqrt(values)
            case AggregateFunction.COVAR_POP:
                values = moments[0]
            case AggregateFunction.CORR:
                values = moments[0] / np.sqrt(moments[1]) / np.sqrt(moments[2])
                values = np.clip(values, -1.0, 1.0)
                nulls = nulls | (moments[1] == 0) | (moments[2] == 0)
            case AggregateFunction.REGR_SLOPE | AggregateFunction.REGR_INTERCEPT:
                values = moments[0] / moments[1]
                nulls = nulls | (moments[1] == 0)
                if aggregate.function is AggregateFunction.REGR_INTERCEPT:
                    first, second = map(_mean, reads_of(aggregate)[2:], made[2:])
                    values = first - values * second
            case _:
                raise AssertionError(aggregate.function)
        nulls = nulls | ~np.isfinite(values)
    return pa.array(np.where(nulls, 0.0, values), mask=nulls)


def _mean(read: TermRead, made: ResultWords) -> NDArray[np.float64]:
    counts, first, second = made
    if read.read is ReadKind.DOUBLE:
        sums: Any = first.view(np.float64)
    else:
        sums = _exact(first, second)
    means: NDArray[np.float64] = (sums / np.maximum(counts, 1)).astype(np.float64)
    return means
