"""Generated expressions, tables and queries: what the differential tests run on."""

from __future__ import annotations

import functools
import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from shedder.cql.binding.bind import bind
from shedder.cql.binding.parse import parse
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Expression, Literal, Op
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.archive_layout import Plain
from shedder.cql.statements.bound_query import BoundQuery, StreamSchema
from shedder.cql.statements.statement import ColumnDefinition, Select

BOOL, INT, BIG, DBL, TXT, TIME, DAY = (
    ColumnType.BOOLEAN,
    ColumnType.INTEGER,
    ColumnType.BIGINT,
    ColumnType.DOUBLE,
    ColumnType.VARCHAR,
    ColumnType.TIMESTAMP,
    ColumnType.DATE,
)
COLUMNS = {
    "ts": TIME,
    "b": BOOL,
    "c": BOOL,
    "i": INT,
    "l": BIG,
    "m": BIG,
    "d": DBL,
    "e": DBL,
    "s": TXT,
    "t": TXT,
    "ts2": TIME,
    "day": DAY,
}
SCHEMA = StreamSchema(
    name="stream",
    columns=tuple(ColumnDefinition(name, kind, True) for name, kind in COLUMNS.items()),
    time_column="ts",
    lateness_us=0,
    retain_us=None,
    layout=Plain(),
    seed=1,
)
INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
# The years 1 to 9999: where calendars agree.
YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
YEARS_DAYS = (-719_162, 2_932_896)

_bigints = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([*INT64, INT64[0] + 1, 1 << 31, -(1 << 31), (1 << 53) + 1, 3_037_000_500]),
    st.integers(*INT64),
)
_doubles = st.one_of(
    st.sampled_from(
        [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 1.005, 5e-324, 1e308, -1e308]
    ),
    st.sampled_from([math.inf, -math.inf, 2.0**63, -(2.0**63), 2.0**31, 9.007199254740993e15]),
    st.floats(allow_nan=False),
    st.integers(-100, 100).map(lambda n: n / 4),
)
_texts = st.one_of(
    st.sampled_from(["", "a", "A", "ab", "a%", "a_b", "\\", "a\nb", "é", "zÄ", "😀x", "'", "O'x"]),
    st.sampled_from(
        ["12", " 12", "-0012", "+5", "1e3", ".5", "1.", "1e400", "9223372036854775808"]
    ),
    st.sampled_from(
        ["-9223372036854775808", "2147483648", "1_000", "0x1F", "nan", "Infinity", "٣"]
    ),
    # Letters whose other case is one letter: docs/cql.md says what the rest may become.
    st.text(
        st.characters(max_codepoint=0x24F, exclude_characters="\0").filter(
            lambda letter: len(letter.lower()) == len(letter.upper()) == 1
        ),
        max_size=5,
    ),
)
_times = st.one_of(
    st.sampled_from(
        [0, -1, 1, *YEARS_US, 1_700_000_000_123_456, -86_400_000_000, 951_782_400_000_000]
    ),
    st.integers(*YEARS_US),
)
_days = st.one_of(
    st.sampled_from([0, -1, 4, 5, 11_016, 19_999, *YEARS_DAYS]), st.integers(*YEARS_DAYS)
)
_VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT: st.one_of(st.sampled_from([*INT32, 0, 1, -1]), st.integers(*INT32)),
    BIG: _bigints,
    DBL: _doubles,
    TXT: _texts,
    TIME: _times,
    DAY: _days,
}


@st.composite
def batches(draw: st.DrawFn, rows_max: int = 8) -> pa.RecordBatch:
    """Rows of all columns, with NULLs, NaN, infinities and the ends of every type."""
    rows = draw(st.integers(1, rows_max))
    arrays = []
    for kind in COLUMNS.values():
        values = st.one_of(st.none(), _VALUES[kind])
        if kind is DBL:
            values = st.one_of(values, st.just(math.nan))
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        arrays.append(pa.array(drawn, kind.arrow, from_pandas=False))
    return pa.record_batch(arrays, names=list(COLUMNS))


def _call(op: Op, *args: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.tuples(*args).map(lambda parts: Call(op, parts))


def _cast(inner: st.SearchStrategy[Expression], kind: ColumnType) -> st.SearchStrategy[Expression]:
    casted = inner.filter(lambda node: not isinstance(node, Literal))
    return casted.map(lambda node: Call(Op.CAST, (node,), kind))


def _with_constants(
    op: Op, inner: st.SearchStrategy[Expression], *constants: tuple[int | str, ...]
) -> st.SearchStrategy[Expression]:
    literals = [
        tuple(Literal(each, BIG if isinstance(each, int) else TXT) for each in given)
        for given in constants
    ]
    return st.tuples(inner, st.sampled_from(literals)).map(lambda p: Call(op, (p[0], *p[1])))


def _units(*names: str) -> st.SearchStrategy[Expression]:
    return st.sampled_from([Literal(name, TXT) for name in names])


def literals(kind: ColumnType) -> st.SearchStrategy[Expression]:
    """A typed constant, as the parser makes it."""
    return _VALUES[kind].map(lambda value: Literal(value, BIG if kind is INT else kind))


@functools.cache
def expressions(kind: ColumnType, depth: int = 2) -> st.SearchStrategy[Expression]:
    """An untyped expression that binds to this type (or one that widens to it)."""
    columns = st.sampled_from([Column(name) for name, have in COLUMNS.items() if have is kind])
    leaves = st.one_of(columns, columns, literals(kind)) if kind is not INT else columns
    if depth == 0:
        return leaves
    return st.one_of(leaves, *_made(kind, depth - 1))


def _made(kind: ColumnType, depth: int) -> list[st.SearchStrategy[Expression]]:
    def of(inner: ColumnType) -> st.SearchStrategy[Expression]:
        return st.deferred(lambda: expressions(inner, depth))

    made = [
        _call(Op.CASE, of(BOOL), of(kind), of(kind)),
        _call(Op.COALESCE, of(kind), of(kind)),
    ]
    match kind:
        case ColumnType.BOOLEAN:
            for inner in (BIG, DBL, TXT, TIME, DAY, BOOL):
                made += [
                    _call(op, of(inner), of(inner))
                    for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
                ]
            made += [_call(op, of(BOOL), of(BOOL)) for op in (Op.AND, Op.OR)]
            made += [
                _call(Op.NOT, of(BOOL)),
                _call(Op.IS_NULL, of(DBL)),
                _call(Op.IS_NULL, of(TXT)),
            ]
            made += [_call(Op.IN, of(k), literals(k), literals(k)) for k in (BIG, DBL, TXT, TIME)]
            made += [_call(Op.IN, of(DBL), st.just(Literal(None)), literals(DBL))]
            wider = ((DBL, BIG), (TIME, DAY))
            made += [_call(Op.IN, of(k), literals(less), literals(k)) for k, less in wider]
            made += [_call(Op.LIKE, of(TXT), _patterns), _cast(of(DBL), BOOL), _cast(of(BIG), BOOL)]
        case ColumnType.BIGINT:
            pairs = ((BIG, BIG), (INT, BIG), (BIG, INT))
            for op in (Op.ADD, Op.SUB, Op.MUL, Op.MOD):
                made += [_call(op, of(left), of(right)) for left, right in pairs]
            made += [_call(op, of(BIG)) for op in (Op.NEG, Op.ABS, Op.FLOOR, Op.ROUND)]
            made += [_cast(of(k), BIG) for k in (DBL, TXT, BOOL, INT, TIME, DAY)]
            made += [_call(Op.LENGTH, of(TXT)), _call(Op.SUB, of(TIME), of(TIME))]
            made += [_call(Op.EXTRACT, _units(*_PARTS), of(k)) for k in (TIME, DAY)]
        case ColumnType.INTEGER:
            made += [_cast(of(k), INT) for k in (DBL, TXT, BIG, BOOL)]
        case ColumnType.DOUBLE:
            for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD):
                made += [_call(op, of(DBL), of(DBL)), _call(op, of(DBL), of(BIG))]
            made += [_call(op, of(DBL)) for op in (Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.ROUND)]
            made += [_call(Op.ROUND, of(DBL), st.integers(0, 5).map(lambda n: Literal(n, BIG)))]
            made += [_call(Op.DIV, of(BIG), of(BIG)), _call(Op.EXTRACT, _units("EPOCH"), of(TIME))]
            made += [_cast(of(k), DBL) for k in (TXT, BIG, BOOL)]
        case ColumnType.VARCHAR:
            made += [_call(Op.CONCAT, of(TXT), of(TXT)), _cast(of(BIG), TXT), _cast(of(BOOL), TXT)]
            made += [_call(op, _ascii) for op in (Op.LOWER, Op.UPPER)]
            made += [_with_constants(op, of(TXT), *given) for op, given in _OF_TEXT.items()]
            made += [_with_constants(Op.STRFTIME, _moments, *_FORMATS)]
        case ColumnType.TIMESTAMP:
            made += [_call(Op.DATE_TRUNC, _units(*_UNITS), of(k)) for k in (TIME, DAY)]
            made += [_cast(of(DAY), TIME)]
            made += [_call(op, st.just(Column("ts")), _spans) for op in (Op.ADD, Op.SUB)]
        case ColumnType.DATE:
            made += [_cast(of(TIME), DAY)]
    return made


_UNITS = ("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_PARTS = (*_UNITS, "MILLISECOND", "DOW", "ISODOW", "DOY")
_OF_TEXT: dict[Op, list[tuple[int | str, ...]]] = {
    Op.SUBSTRING: [(1,), (2, 1), (3, 0), (1, 2**31 - 1), (2**31 - 1, 2**31 - 1)],
    Op.SPLIT_PART: [("a", 1), ("a", 2), ("aa", -1), ("é", 1), ("😀", -2), ("'", 2), ("\\", -1)],
    Op.REPLACE: [("a", ""), ("😀", "zé"), ("'", '"'), ("\\", "/"), ("aa", "a"), ("é", "%")],
    Op.REGEXP_EXTRACT: [
        ("a.", 0),
        ("(a|é)([^a-c]?)", 2),
        ("^[+-]?\\d+$", 0),
        ("(?:x|(a))(\\W*)", 1),
        ("[\\s\\]'&^-]+?|\\D{2,3}", 0),
        ("(.+?)$", 1),
        ("", 0),
    ],
}
_FORMATS = [("%Y-%m-%d %H:%M:%S",), ("%j%%'%Y%Y\\",), ("%d é 'of' %m",)]
_moments: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from([Column("ts"), Column("ts2"), Column("day")]),
    _times.map(lambda us: Literal(us, TIME)),
)
_spans = st.integers(-1_000_000_000, 1_000_000_000).map(lambda us: Literal(us, BIG))
_ascii = st.sampled_from([Literal("aZ", TXT), Column("s")])
_patterns = st.one_of(
    st.sampled_from(["%", "_", "", "a%", "%b", "a\\%", "_%_", "\\\\", "a\\_b", "%\n%", "é", "'%"]),
    st.text(st.sampled_from("a%_b."), max_size=4),
).map(lambda text: Literal(text, TXT))


def bound_expression(node: Expression) -> Expression:
    """The tree through its own text, parser and binder, as a user's text would come."""
    select = parse(f"SELECT COUNT({text_of(node)}) AS n FROM stream")
    assert isinstance(select, Select)
    assert parse(select.text) == select
    [aggregate] = bind(select, SCHEMA).aggregates
    assert aggregate.argument is not None
    return aggregate.argument


def bound_query(text: str, schema: StreamSchema = SCHEMA) -> BoundQuery:
    """A bound query from its text."""
    select = parse(text)
    assert isinstance(select, Select)
    return bind(select, schema)
