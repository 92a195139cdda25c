"""A frame: one batch inside the engine, with its derived columns, each computed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Column, Expression, as_whole_numbers, walk
from shedder.cql.expressions.integer_division import remainder_of, remainders
from shedder.streams.basics import ColumnBasics
from shedder.streams.column_bits import are_doubles
from shedder.streams.histogram_rows import bucket_of
from shedder.streams.monotone_expressions import monotone_of
from shedder.streams.non_null_values import Pairs, Present, paired, present
from shedder.streams.positions import Positions
from shedder.streams.row_selection import BatchRows
from shedder.streams.value_hashes import hash_values
from synopses.kernels.hashing import combine
from synopses.samples.admission_kernels import Rows, below, few_below, parted

_WHOLE = (ColumnType.BIGINT, ColumnType.TIMESTAMP)
_STRETCHES = 8  # Each query asks for the rows that came too late, those that did not, and others.
_AMONG_MIN = 1  # Half of the rows are gathered no faster than all are looked at.
_FEW_LEVEL = 3  # From 1/8 on, few rows are kept (benchmarks/thinning.py).
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: no value's hash by design


@dataclass(frozen=True, slots=True, eq=False)
class Hashes:
    """Both halves of the 128-bit hash of an expression's non-null values; rows as in Present."""

    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    rows: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentBasics:
    """What is known of an expression's values without a synopsis having read them.

    rows: how many values there are. low, high: their range; None where there is none, and for text.
    low_beside, high_beside: the range of what stands beside each value: the other value of a pair,
    or the event time.
    """

    rows: int
    low: int | float | None
    high: int | float | None
    low_beside: int | float | None = None
    high_beside: int | float | None = None


class Frame(BatchRows):
    """Rows of one batch and what queries derive from them; queries share what they derive.

    A frame is used by one thread. `where`, `in_time_order`, `between` and `thinned` give frames
    over the same batch, which gather a column at its first use.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        time_column: str,
        rows: NDArray[np.int64] | None = None,
        positions: Positions | None = None,
    ) -> None:
        """A frame over these rows of a batch (BatchRows); nothing is derived yet."""
        super().__init__(batch, time_column, rows, positions)
        self._values: dict[Expression, pa.Array[Any]] = {}
        self._present: dict[Expression, Present] = {}
        self._pairs: dict[tuple[Expression, Expression], Pairs] = {}
        self._hashes: dict[Expression, Hashes] = {}
        self._identities: dict[Expression, Expression] = {}
        self._keys: dict[tuple[Expression, ...], NDArray[np.uint64]] = {}
        self._where: dict[Expression, Frame | None] = {}  # None: all rows, without a cycle.
        self._ordered: Frame | None = None
        self._thinned: dict[int | tuple[Expression, int], Thinned] = {}
        self._kept: dict[int | tuple[Expression, int], Rows] = {}
        self._known: dict[tuple[Expression, int, int], ArgumentBasics] = {}
        self._known_pairs: dict[tuple[tuple[Expression, Expression], int, int], ArgumentBasics] = {}
        self._between: dict[tuple[int, int], Frame] = {}  # The last few: not all of them.
        self._source: tuple[dict[Expression, Present], NDArray[np.int64]] | None = None

    def in_time_order(self) -> Frame:
        """The same rows by event time; this frame itself when they already are."""
        if self.is_in_time_order:
            return self
        if self._ordered is None:
            self._ordered = self._take(np.argsort(self.times_us, kind="stable"))
        return self._ordered

    def true(self, condition: Expression | None) -> NDArray[np.bool_]:
        """Return whether the condition is true (not false, not NULL) in each row: bool [rows]."""
        if condition is None:
            return np.ones(len(self), np.bool_)
        return true_rows(self.evaluate(condition))

    def where(self, condition: Expression | None) -> Frame:
        """The rows where the condition is true (not false, not NULL)."""
        if condition is None:
            return self
        if condition not in self._where:
            truth = self.true(condition)
            self._where[condition] = None if truth.all() else self._take(np.flatnonzero(truth))
        some = self._where[condition]
        return self if some is None else some

    def forget_where(self, condition: Expression | None) -> None:
        """Release the rows where a condition is true, and all columns derived from these rows."""
        if condition is None:
            return
        self._where.pop(condition, None)
        ordered = [] if self._ordered is None else [self._ordered]
        for each in (*self._between.values(), *ordered):
            each.forget_where(condition)

    def between(self, first: int, last: int) -> Frame:
        """Rows first to last (exclusive)."""
        if first == 0 and last == len(self):
            return self
        known = self._between.get((first, last))
        if known is None:
            if len(self._between) >= _STRETCHES:
                del self._between[next(iter(self._between))]
            known = self._between[first, last] = self._stretch(first, last)
        return known

    def _stretch(self, first: int, last: int) -> Frame:
        if self._rows is None:
            later = None if self._positions is None else self._positions.after(first)
            return Frame(self.batch.slice(first, last - first), self._time_column, positions=later)
        return self._over(self._rows[first:last])

    def thinned(self, level: int, taken: Rows | None = None) -> Thinned:
        """The rows that are kept at a level: those whose random key is below 2^(64 - level).

        Which these are depends on the stream's seed and the positions alone, so that of any rows,
        however they were chosen by their values, the kept ones are a simple random sample. What
        is kept at a level is kept at all below it.

        Args:
          level: 0 keeps all. taken: rows that are read in full, ascending; None: no rows are.
        """
        if not level:
            return Thinned(self, None)
        if taken is not None:
            rows, others = parted(self._kept_rows(level), taken)
            return Thinned(self._picked(rows), rows[:others], taken)
        if level not in self._thinned:
            rows = self._kept_rows(level)
            self._thinned[level] = Thinned(self._picked(rows), rows)
        return self._thinned[level]

    def _kept_rows(self, level: int) -> Rows:
        if level not in self._kept:
            assert self._positions is not None, "only a stream's own tuples can be thinned"
            keys = self._positions.keys(self.batch.num_rows)
            among = self._chosen_before(range(level - 1, _AMONG_MIN, -1))
            if among is None:
                own = keys if self._rows is None else keys[self._rows]
            else:
                own = keys[among if self._rows is None else self._rows[among]]
            chosen = below if level < _FEW_LEVEL else few_below
            rows = chosen(own, np.uint64(1 << (64 - level)))
            self._kept[level] = rows if among is None else among[rows]
        return self._kept[level]

    def _chosen_before(self, keys: Iterable[int | tuple[Expression, int]]) -> Rows | None:
        """The rows of the first of these choices that has been made: those of a higher level are
        among them, and are found faster there; None: none has been.
        """
        return next((self._kept[key] for key in keys if key in self._kept), None)

    def thinned_by(self, expression: Expression, level: int) -> Thinned:
        """The rows whose value has a hash below 2^(64 - level): those of a random part of values.

        It is the same part for ever, and nested as for `thinned`; NULL and NaN are in none.
        Expressions whose values are one where their column's are share one choice of rows.
        """
        of = self._identity_of(expression)
        if (of, level) not in self._thinned:
            hashes, limit = self.identities(of), np.uint64(1 << (64 - level))
            lower = ((of, each) for each in range(level - 1, _AMONG_MIN, -1))
            among = self._chosen_before(lower) if hashes.rows is None else None
            if among is not None:
                rows = among[below(hashes.first[among], limit)]
            else:
                kept = below(hashes.first, limit)
                rows = kept if hashes.rows is None else hashes.rows[kept]
            self._kept[of, level] = rows
            self._thinned[of, level] = Thinned(self._picked(rows), rows)
        return self._thinned[of, level]

    def known(self, expression: Expression, first: int, last: int) -> ArgumentBasics:
        """What is known of an expression's values in the rows first to last (exclusive)."""
        known = self._known.get((expression, first, last))
        if known is None:
            known = self._known_by_basics(expression, first, last)
            known = known or self._known_by_column(expression, first, last)
            known = known or _known(self.present(expression), first, last)
            self._known[expression, first, last] = known
        return known

    def _known_by_basics(
        self, expression: Expression, first: int, last: int
    ) -> ArgumentBasics | None:
        """The same of a column of 64-bit values in all rows; None: of others."""
        if not isinstance(expression, Column) or last - first < len(self):
            return None
        words = self._words_of(expression.name)
        if words is None or not words.size:
            return None
        basics = self.basics(expression.name)
        return ArgumentBasics(basics.rows, basics.low, basics.high)

    def _known_by_column(
        self, expression: Expression, first: int, last: int
    ) -> ArgumentBasics | None:
        """The same by the column that an expression rises or falls with; None: it is not known."""
        chain = None if isinstance(expression, Column) else monotone_of(expression)
        if chain is None:
            return None
        known = self.known(chain.column, first, last)
        if known.low is None or known.high is None:
            return known
        ends = chain.ends(known.low, known.high)
        return None if ends is None else ArgumentBasics(known.rows, *ends)

    def known_pairs(
        self, pair: tuple[Expression, Expression], first: int, last: int
    ) -> ArgumentBasics:
        """The same of the pairs of two expressions; as doubles, rounded outward."""
        known = self._known_pairs.get((pair, first, last))
        if known is None:
            known = self._known_pairs[pair, first, last] = self._find_pairs(pair, first, last)
        return known

    def _find_pairs(
        self, pair: tuple[Expression, Expression], first: int, last: int
    ) -> ArgumentBasics:
        pairs = self.pairs(*pair)
        low, high = _places(pairs.rows, first, last)
        if low == high:
            return ArgumentBasics(0, None, None)
        if pairs.rows is None:  # Each row has both values, and their ranges may be known.
            x, y = (self.known(as_whole_numbers(part), first, last) for part in pair)
        else:
            both = (Present(each[low:high], None) for each in (pairs.first, pairs.second))
            x, y = (_known(each, 0, high - low) for each in both)
        return ArgumentBasics(high - low, *_ends(x), *_ends(y))

    def known_in_time(self, expression: Expression, first: int, last: int) -> ArgumentBasics:
        """The same of an expression, and the event times at which it has a value."""
        known = self.known(expression, first, last)
        if not known.rows:
            return known
        rows = self.present(expression).rows
        low, high = _places(rows, first, last)
        times = self.times_us[low:high] if rows is None else self.times_us[rows[low:high]]
        return replace(known, low_beside=int(times.min()), high_beside=int(times.max()))

    def evaluate(self, expression: Expression) -> pa.Array[Any]:
        """The expression's value in every row, as a typed Arrow array."""
        if isinstance(expression, Column):
            return self._column(expression.name)
        if expression not in self._values:
            names = {node.name for node in walk(expression) if isinstance(node, Column)}
            names = names or {self._time_column}  # A constant still needs the number of rows.
            batch = pa.RecordBatch.from_arrays([self._column(n) for n in names], names=list(names))
            self._values[expression] = evaluate(expression, batch)
        return self._values[expression]

    def present(self, expression: Expression) -> Present:
        """The expression's values where it is neither NULL nor NaN."""
        found = self._present.get(expression)
        if found is None:
            found = self._gathered(expression) or self._derived(expression)
            self._present[expression] = found
        return found

    def _gathered(self, expression: Expression) -> Present | None:
        """Of picked rows, where the frame they are of has the values without a gap: no new look."""
        if self._source is None:
            return None
        there, rows = self._source
        known = there.get(expression)
        if known is None or known.rows is not None or not isinstance(known.values, np.ndarray):
            return None
        return Present(known.values.take(rows), None)

    def _derived(self, expression: Expression) -> Present:
        if isinstance(expression, Column):
            return self._present_column(expression)
        rest = self._remainders(expression)
        if rest is not None:
            return rest
        bucket = bucket_of(expression)
        if bucket is None:
            if self._known_by_column(expression, 0, len(self)) is not None:
                chain = monotone_of(expression)
                assert chain is not None
                column = self.present(chain.column)
                return Present(chain.of(np.asarray(column.values)), column.rows)
            return present(self.evaluate(expression))
        of = self.present(bucket.x)
        assert isinstance(of.values, np.ndarray), bucket
        inside = bucket.among(of.values)
        rows = inside if of.rows is None else of.rows[inside]
        return Present(np.ones(len(rows), np.int64), None if len(rows) == len(self) else rows)

    def _present_column(self, column: Column) -> Present:
        words = self._words_of(column.name)
        if words is not None and column.type in _WHOLE:
            return Present(words, None)
        values = self._column(column.name)
        if words is not None and are_doubles(values) and not self.basics(column.name).nulls:
            return Present(words.view(np.float64), None)  # Basics are found faster than NaN is.
        return present(values)

    def _remainders(self, expression: Expression) -> Present | None:
        """What whole numbers have over a multiple of one; None: it is another expression."""
        division = remainder_of(expression)
        if division is None:
            return None
        of = self.present(division.of)
        rest = remainders(np.asarray(of.values), division.by)
        return None if rest is None else Present(rest, of.rows)

    def pairs(self, first: Expression, second: Expression) -> Pairs:
        """The values of two expressions in the rows where both have one.

        Whole numbers that were cast to DOUBLE come as int64, with all their digits.
        """
        if (first, second) not in self._pairs:
            x, y = (self.present(as_whole_numbers(part)) for part in (first, second))
            self._pairs[first, second] = paired(x, y, len(self))
        return self._pairs[first, second]

    def hashes(self, expression: Expression) -> Hashes:
        """Hashes of the expression's values where it is neither NULL nor NaN."""
        found = self._hashes.get(expression)
        if found is None:
            present = self.present(expression)
            found = self._hashes[expression] = Hashes(*hash_values(present.values), present.rows)
        return found

    def identities(self, expression: Expression) -> Hashes:
        """Hashes of which two are one where the values are: of what these come from one to one.

        So all that is counted of a column, whatever is added to it, shares one hash of it.
        """
        of = self._identity_of(expression)
        chain = None if isinstance(of, Column) else monotone_of(of)
        if chain is None or not chain.injective:
            return self.hashes(of)
        column = self.hashes(chain.column)
        rows = self.present(expression).rows  # NULL where it overflows.
        if rows is None:
            return column
        at = rows if column.rows is None else np.searchsorted(column.rows, rows)
        return Hashes(column.first[at], column.second[at], rows)

    def _identity_of(self, expression: Expression) -> Expression:
        """The column that has as many values, where these come from it one to one; or itself."""
        if isinstance(expression, Column):
            return expression
        if expression not in self._identities:
            chain = monotone_of(expression)
            of: Expression = expression
            if chain is not None and chain.injective:
                known = self._known_by_column(expression, 0, len(self))
                of = expression if known is None else chain.column
            self._identities[expression] = of
        return self._identities[expression]

    def keys(self, expressions: tuple[Expression, ...]) -> NDArray[np.uint64]:
        """One 64-bit key per row for a list of group expressions; NULL is a value of its own."""
        if expressions not in self._keys:
            keys = self._key(expressions[0])
            for expression in expressions[1:]:
                keys = combine(keys, self._key(expression))
            self._keys[expressions] = keys
        return self._keys[expressions]

    def _key(self, expression: Expression) -> NDArray[np.uint64]:
        hashes = self.hashes(expression)
        if hashes.rows is None:
            return hashes.first
        keys = np.full(len(self), _NULL_HASH, np.uint64)
        keys[hashes.rows] = hashes.first
        return keys

    def rows_where(self, kept: NDArray[np.bool_]) -> Frame:
        """The rows where bool [rows] is true, with their positions."""
        return self._take(np.flatnonzero(kept))

    def _picked(self, rows: NDArray[np.int64]) -> Frame:
        """Some rows; what this frame has derived is not derived again, but gathered."""
        some = self._take(rows)
        some._source = self._present, rows  # Not the frame: it holds the picked one.
        return some

    def _take(self, rows: NDArray[np.int64]) -> Frame:
        return self._over(rows if self._rows is None else self._rows[rows])

    def _over(self, rows: NDArray[np.int64]) -> Frame:
        return Frame(self.batch, self._time_column, rows, self._positions)


@dataclass(frozen=True, slots=True, eq=False)
class Thinned:
    """What is kept of a frame.

    rows: int64 [kept], where in the frame, ascending; None: all.
    taken: int64 [taken], rows that are read in full, ascending. They stand behind the kept ones,
    which they are not among. None: no rows are.
    """

    frame: Frame
    rows: NDArray[np.int64] | None
    taken: NDArray[np.int64] | None = None

    def between(self, first: int, last: int) -> tuple[int, int]:
        """Return where the frame's rows first to last are among the kept ones."""
        return _places(self.rows, first, last)

    def taken_between(self, first: int, last: int) -> tuple[int, int]:
        """Return where those of these rows are that are read in full."""
        if self.taken is None or self.rows is None:
            return 0, 0
        low, high = _places(self.taken, first, last)
        return len(self.rows) + low, len(self.rows) + high


def is_text(kind: ColumnType | None) -> bool:
    """Return whether values of this type are kept as Arrow text."""
    return kind is ColumnType.VARCHAR


def _known(present: Present, first: int, last: int) -> ArgumentBasics:
    first, last = _places(present.rows, first, last)
    if first == last or not isinstance(present.values, np.ndarray):
        return ArgumentBasics(last - first, None, None)
    values = present.values[first:last]
    return ArgumentBasics(last - first, values.min().item(), values.max().item())


def _ends(known: ArgumentBasics) -> tuple[float, float]:
    """The range of numbers as doubles, rounded outward."""
    return ColumnBasics(known.rows, 0, known.low, known.high).ends


def _places(rows: NDArray[np.int64] | None, first: int, last: int) -> tuple[int, int]:
    """Return where the rows first to last are among these ascending ones; None: all rows are."""
    if rows is None:
        return first, last
    if not rows.size or (rows[0] >= first and rows[-1] < last):  # Nearly every batch is one pane's.
        return 0, int(rows.size)
    ends = np.searchsorted(rows, (first, last))
    return int(ends[0]), int(ends[1])
