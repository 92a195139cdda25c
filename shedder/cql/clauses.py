"""The clauses of CQL as the grammar found them, to statements: checked, defaults filled in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from shedder.cql.dialect import WINDOW
from shedder.cql.expression import Expression, Literal
from shedder.cql.intervals import duration_text
from shedder.cql.later import later
from shedder.cql.limits import Limits
from shedder.cql.literals import Bindings, converted
from shedder.cql.raw import RawCreateStream, RawDuration, RawNumber, RawSelect, RawWindow
from shedder.cql.source import Source, start_of
from shedder.cql.statement import (
    ColumnDefinition,
    Contract,
    CreateStream,
    LandmarkWindow,
    Layout,
    OrderKey,
    Output,
    RangeWindow,
    Reduction,
    Select,
    SnapshotWindow,
    Target,
    TargetKind,
    UnboundedWindow,
    Window,
)
from shedder.cql.text import name_of, text_of_select
from shedder.cql.translate import Translator, column_type
from shedder.cql.types import ColumnType
from shedder.errors import BadQuery, Unimplemented

CONFIDENCE = 0.95
SLIDES_PER_RANGE = 60
WEIGHT_MAX = 1e9
COLUMNS_MAX = 1_000

_KNOWN = {"expressions", "from_", "where", "group", "having", "order", "limit"}
_CLAUSES = {
    "joins": "joins",
    "laterals": "LATERAL",
    "distinct": "SELECT DISTINCT",
    "offset": "OFFSET",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "into": "SELECT INTO",
    "with_": "WITH",
    "sample": "TABLESAMPLE",
    "hint": "hints",
}


def selected(raw: RawSelect, source: Source, bindings: Bindings, limits: Limits) -> Select:
    """The query that was said.

    Raises:
      BadQuery: with the place. Unimplemented: a clause of a later version.
    """
    select = raw.select
    for key, value in select.args.items():
        if value and key not in _KNOWN:
            raise later(_CLAUSES.get(key, key.strip("_").upper()))
    table = select.args["from_"].this if select.args.get("from_") else None
    if not isinstance(table, exp.Table):
        raise source.error("expected FROM and the name of a stream", start_of(select))
    translator = Translator(source, bindings, limits, (table.name, table.alias))
    outputs = _outputs(select.expressions, translator, source)
    where, having = select.args.get("where"), select.args.get("having")
    query = Select(
        text="",
        outputs=outputs,
        stream=table.name,
        window=_window(table.meta.get(WINDOW), translator, source, limits),
        where=translator.expression(where.this) if where else None,
        groups=_groups(select.args.get("group"), outputs, translator, source),
        having=translator.expression(having.this) if having else None,
        order=_order(select.args.get("order"), outputs, translator, source),
        limit=_limit(select.args.get("limit"), translator, source),
        target=_target(raw.target, translator, source),
        confidence=_confidence(raw.confidence, translator, source),
        contract=Contract(raw.contract or "WIDEN"),
        weight=_weight(raw.weight, translator, source),
        reduction=_reduction(raw.reduction, translator, source),
    )
    return replace(query, text=text_of_select(query))


# --- the select list and its order --------------------------------------------------------------


def _outputs(
    nodes: Iterable[exp.Expr], translator: Translator, source: Source
) -> tuple[Output, ...]:
    outputs: list[Output] = []
    taken = {node.alias.lower() for node in nodes if isinstance(node, exp.Alias)}
    said: set[str] = set()
    for node in nodes:
        if isinstance(node, exp.Alias):
            name, inner = node.alias, node.this
            if name.lower() in said:
                raise source.wrong(node, f"two outputs are named {name!r}")
            said.add(name.lower())
            outputs.append(Output(name, translator.expression(inner)))
            continue
        expression = translator.expression(node)
        name = _free(name_of(expression), taken)
        taken.add(name.lower())
        outputs.append(Output(name, expression))
    if not outputs:
        raise source.error("expected something to select", None)
    return tuple(outputs)


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def _groups(
    group: exp.Group | None, outputs: tuple[Output, ...], translator: Translator, source: Source
) -> tuple[Expression, ...]:
    if group is None:
        return ()
    for key in ("grouping_sets", "cube", "rollup", "totals", "all"):
        if group.args.get(key):
            raise later(f"GROUP BY {key.replace('_', ' ').upper()}")
    found = [_by_number(node, outputs, translator, source) for node in group.expressions]
    if not found:
        raise source.error("expected something to group by", start_of(group))
    return tuple(dict.fromkeys(found))


def _order(
    order: exp.Order | None, outputs: tuple[Output, ...], translator: Translator, source: Source
) -> tuple[OrderKey, ...]:
    keys = []
    for node in order.expressions if order else ():
        if node.args.get("nulls_first"):
            raise Unimplemented("NULLS FIRST: NULLs always come last")
        if node.args.get("with_fill"):
            raise Unimplemented("WITH FILL: not in this version")
        expression = _by_number(node.this, outputs, translator, source)
        keys.append(OrderKey(expression, bool(node.args.get("desc"))))
    return tuple(keys)


def _by_number(
    node: exp.Expr, outputs: tuple[Output, ...], translator: Translator, source: Source
) -> Expression:
    """GROUP BY 1 and ORDER BY 2 mean the outputs of these numbers."""
    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.name.isdigit() or not 1 <= int(node.name) <= len(outputs):
            raise source.wrong(
                node, f"{node.name} is not the number of an output; there are {len(outputs)}"
            )
        return outputs[int(node.name) - 1].expression
    return translator.expression(node)


def _limit(limit: exp.Limit | None, translator: Translator, source: Source) -> int | None:
    if limit is None:
        return None
    if limit.args.get("limit_options") or not isinstance(limit, exp.Limit):
        raise later("FETCH and LIMIT ... PERCENT or WITH TIES")
    value = translator.constant(limit.expression).value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise source.wrong(limit.expression, f"LIMIT takes a whole number, not {value!r}")
    return value


# --- windows ------------------------------------------------------------------------------------


def _window(
    raw: RawWindow | None, translator: Translator, source: Source, limits: Limits
) -> Window:
    if raw is None or (raw.length is None and raw.begin is None):
        return UnboundedWindow()
    if raw.begin is not None:
        start_us = _moment(raw.begin, translator, source)
        if raw.end is None:
            return LandmarkWindow(start_us)
        end_us = _moment(raw.end, translator, source)
        if end_us <= start_us:
            raise source.error("the window ends before it begins", raw.start)
        return SnapshotWindow(start_us, end_us)
    assert raw.length is not None
    range_us = _positive_us(raw.length, "RANGE", translator, source)
    if raw.slide is None:
        slide_us = _default_slide_us(range_us)
    else:
        slide_us = _positive_us(raw.slide, "SLIDE", translator, source)
    panes = range_us // math.gcd(range_us, slide_us)
    if panes > limits.panes_max:
        raise source.error(
            f"RANGE {duration_text(range_us)} SLIDE {duration_text(slide_us)} needs {panes:,} "
            f"panes; at most {limits.panes_max:,} are kept",
            raw.start,
        )
    return RangeWindow(range_us, slide_us)


def _default_slide_us(range_us: int) -> int:
    """A sixtieth of the range; where 60 does not divide it, the next larger part that does."""
    pieces = next(count for count in range(SLIDES_PER_RANGE, 0, -1) if range_us % count == 0)
    return range_us // pieces


def _positive_us(raw: RawDuration, what: str, translator: Translator, source: Source) -> int:
    us = _duration_us(raw, translator, source)
    if us <= 0:
        raise source.error(f"{what} must be longer than 0, not {us} microseconds", raw.start)
    return us


def _duration_us(raw: RawDuration, translator: Translator, source: Source) -> int:
    try:
        value = translator.interval(raw.amount, raw.unit).value
    except ValueError as error:
        raise source.error(str(error), raw.start) from error
    assert isinstance(value, int)
    return value


def _moment(node: exp.Expr, translator: Translator, source: Source) -> int:
    literal = translator.constant(node)
    try:
        match literal:
            case Literal(value=int(us), type=ColumnType.TIMESTAMP):
                return us
            case Literal(value=int(days), type=ColumnType.DATE):
                return days * 86_400_000_000
            case Literal(value=str(text)):
                moment = converted(text, ColumnType.TIMESTAMP).value
                assert isinstance(moment, int)
                return moment
    except ValueError as error:
        raise source.wrong(node, str(error)) from error
    raise source.wrong(node, "a window begins and ends at a TIMESTAMP '2026-01-31 10:42:07'")


# --- precision ----------------------------------------------------------------------------------


def _number(raw: RawNumber, what: str, translator: Translator, source: Source) -> float:
    value = translator.constant(raw.value).value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isinf(value):
        raise source.error(f"{what} takes a number, not {value!r}", raw.start)
    return float(value)


def _target(
    raw: tuple[RawNumber, str] | None, translator: Translator, source: Source
) -> Target | None:
    if raw is None:
        return None
    size = _number(raw[0], "WITHIN", translator, source)
    match raw[1]:
        case "PERCENT" | "PERCENT RANK":
            if not 0 < size < 100:
                raise source.error(
                    f"WITHIN takes more than 0 and less than 100 PERCENT, not {size:g}",
                    raw[0].start,
                )
            kind = TargetKind.RELATIVE if raw[1] == "PERCENT" else TargetKind.RANK
            return Target(kind, _hundredth(size))
        case "RANK":
            if not 0 < size < 1:
                raise source.error(
                    f"WITHIN takes a RANK between 0 and 1, not {size:g}", raw[0].start
                )
            return Target(TargetKind.RANK, size)
        case _:
            if size <= 0:
                raise source.error(
                    f"WITHIN takes an ABSOLUTE size over 0, not {size:g}", raw[0].start
                )
            return Target(TargetKind.ABSOLUTE, size)


def _confidence(
    raw: tuple[RawNumber, bool] | None, translator: Translator, source: Source
) -> float:
    if raw is None:
        return CONFIDENCE
    percent = _number(raw[0], "CONFIDENCE", translator, source)
    if not 0 < percent < 100:
        raise source.error(
            f"CONFIDENCE takes more than 0 and less than 100 PERCENT, not {percent:g}",
            raw[0].start,
        )
    if percent <= 1 and not raw[1]:
        raise source.error(
            f"CONFIDENCE {percent:g} is ambiguous; write CONFIDENCE 95 PERCENT", raw[0].start
        )
    return _hundredth(percent)


def _hundredth(percent: float) -> float:
    """The fraction nearest to the decimal that was written: 7 PERCENT is 0.07."""
    return float(Decimal(repr(percent)) / 100)


def _weight(raw: RawNumber | None, translator: Translator, source: Source) -> float:
    if raw is None:
        return 1.0
    weight = _number(raw, "WEIGHT", translator, source)
    if not 0 < weight <= WEIGHT_MAX:
        raise source.error(
            f"WEIGHT takes a number over 0, at most {WEIGHT_MAX:g}, not {weight:g}", raw.start
        )
    return weight


def _reduction(
    raw: tuple[str, tuple[exp.Expr, ...]] | None, translator: Translator, source: Source
) -> Reduction | None:
    if raw is None:
        return None
    arguments: list[float | str] = []
    for node in raw[1]:
        value = translator.constant(node).value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise source.wrong(node, f"REDUCE BY takes numbers and strings, not {value!r}")
        arguments.append(value if isinstance(value, str) else float(value))
    return Reduction(raw[0], tuple(arguments))


# --- streams ------------------------------------------------------------------------------------


def created_stream(
    raw: RawCreateStream, source: Source, bindings: Bindings, limits: Limits
) -> CreateStream:
    """The stream that was said.

    Raises:
      BadQuery: with the place. Unimplemented: a layout of a later version.
    """
    translator = Translator(source, bindings, limits)
    columns: dict[str, ColumnDefinition] = {}
    for column in raw.columns:
        name = str(column.name.name)
        if name.lower() in columns:
            raise source.wrong(column.name, f"two columns are named {name!r}")
        kind = column_type(column.type, source)
        columns[name.lower()] = ColumnDefinition(name, kind, column.nullable)
    if len(columns) > COLUMNS_MAX:
        raise BadQuery(f"a stream has at most {COLUMNS_MAX:,} columns, not {len(columns):,}")
    if raw.time_column is None:
        raise source.error("expected TIMESTAMP BY and the event-time column", raw.start)
    time = columns.get(str(raw.time_column.name).lower())
    if time is None:
        raise source.wrong(raw.time_column, f"no column {raw.time_column.name!r} in the stream")
    if time.type is not ColumnType.TIMESTAMP:
        raise source.wrong(
            raw.time_column, f"{time.name!r} is {time.type.value}; event time is a TIMESTAMP"
        )
    columns[time.name.lower()] = replace(time, nullable=False)
    lateness_us = 0
    if raw.lateness is not None:
        lateness_us = _duration_us(raw.lateness, translator, source)
        if lateness_us < 0:
            raise source.error("LATENESS cannot be negative", raw.lateness.start)
    retain_us = None
    if raw.retain is not None:
        retain_us = _positive_us(raw.retain, "RETAIN", translator, source)
    return CreateStream(
        name=str(raw.name.name),
        columns=tuple(columns.values()),
        time_column=time.name,
        lateness_us=lateness_us,
        retain_us=retain_us,
        layout=_layout(raw.layout),
        if_not_exists=raw.if_not_exists,
    )


def _layout(name: str | None) -> Layout:
    if name is None or name.lower() == "plain":
        return Layout.PLAIN
    if re.fullmatch("eager|lazy|hybrid", name, re.IGNORECASE):
        raise Unimplemented(
            f"ARCHIVE {name}: not in this version; it comes with the archive; there is plain"
        )
    raise BadQuery(f"no archive layout {name!r}; there is plain")
