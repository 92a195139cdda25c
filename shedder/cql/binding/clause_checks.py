"""The clauses of CQL as the grammar found them, to statements: checked, defaults filled in."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.select_list import groups_of, limit_of, order_of, outputs_of
from shedder.cql.binding.window_checks import duration_us, positive_us, window_of
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.literals import Bindings
from shedder.cql.expressions.type_names import column_type
from shedder.cql.grammar.parse_nodes import RawCreateStream, RawLayout, RawNumber, RawSelect
from shedder.cql.grammar.query_grammar import AS_OF, SAMPLE, WINDOW
from shedder.cql.statements.archive_layout import DEFAULT_LAYOUT, Layout, layout_of
from shedder.cql.statements.bound_query import OWN_COLUMNS
from shedder.cql.statements.canonical_text import text_of_select
from shedder.cql.statements.foreign_key import resolved_key
from shedder.cql.statements.overload_policy import resolved
from shedder.cql.statements.statement import (
    WEIGHT_MAX,
    ColumnDefinition,
    Contract,
    Costing,
    CreateStream,
    ReductionClause,
    Rewrite,
    Select,
    Target,
    TargetKind,
)
from shedder.cql.text.byte_sizes import SIZES
from shedder.cql.text.durations import INT64_MAX
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText, start_of
from shedder.cql.text.unsupported import later
from shedder.errors import BadQuery

CONFIDENCE = 0.95
COLUMNS_MAX = 1_000

_KNOWN = {"expressions", "from_", "where", "group", "having", "order", "limit"}
_CLAUSES = {
    "joins": "joins in this statement",
    "laterals": "LATERAL",
    "distinct": "SELECT DISTINCT in this statement",
    "offset": "OFFSET in this statement",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "into": "SELECT INTO",
    "with_": "WITH in this statement",
    "sample": "TABLESAMPLE",
    "hint": "hints",
}


def selected(raw: RawSelect, source: SourceText, bindings: Bindings, limits: Limits) -> Select:
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
    if table.meta.get(SAMPLE) is not None:
        raise later("SAMPLE in this statement")
    if table.meta.get(AS_OF) is not None:
        raise later("AS OF in this statement")
    translator = Translator(source, bindings, limits, (table.name, table.alias))
    outputs = outputs_of(select.expressions, translator, source)
    where, having = select.args.get("where"), select.args.get("having")
    query = Select(
        text="",
        outputs=outputs,
        stream=table.name,
        window=window_of(table.meta.get(WINDOW), translator, source, limits),
        where=translator.expression(where.this) if where else None,
        groups=groups_of(select.args.get("group"), outputs, translator, source),
        having=translator.expression(having.this) if having else None,
        order=order_of(select.args.get("order"), outputs, translator, source),
        limit=limit_of(select.args.get("limit"), translator, source),
        target=_target(raw.target, translator, source),
        confidence=confidence_of(raw.confidence, translator, source),
        contract=Contract(raw.contract or "WIDEN"),
        weight=_weight(raw.weight, translator, source),
        reduction=_reduction(raw.reduction, translator, source),
        thinning=raw.thinning,
        costing=_costing(raw, translator, source),
    )
    return replace(query, text=text_of_select(query))


# --- precision ----------------------------------------------------------------------------------


def number_of(raw: RawNumber, what: str, translator: Translator, source: SourceText) -> float:
    """A finite number.

    Raises:
      BadQuery: it is none; `what` names the clause.
    """
    value = translator.constant(raw.value).value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isinf(value):
        raise source.error(f"{what} takes a number, not {value!r}", raw.start)
    return float(value)


def _target(
    raw: tuple[RawNumber, str] | None, translator: Translator, source: SourceText
) -> Target | None:
    if raw is None:
        return None
    size = number_of(raw[0], "WITHIN", translator, source)
    match raw[1]:
        case "PERCENT" | "PERCENT RANK":
            if not 0 < size < 100:
                raise source.error(
                    f"WITHIN takes more than 0 and less than 100 PERCENT, not {size:g}",
                    raw[0].start,
                )
            share = hundredth(size)
            if not share:
                raise source.error(
                    f"WITHIN {size:g} {raw[1]} cannot be told from 0; take more", raw[0].start
                )
            kind = TargetKind.RELATIVE if raw[1] == "PERCENT" else TargetKind.RANK
            return Target(kind, share)
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


def confidence_of(
    raw: tuple[RawNumber, bool] | None, translator: Translator, source: SourceText
) -> float:
    """Return the confidence of a CONFIDENCE clause; None: it is the default.

    Raises:
      BadQuery: with the place.
    """
    if raw is None:
        return CONFIDENCE
    percent = number_of(raw[0], "CONFIDENCE", translator, source)
    if not 0 < percent < 100:
        raise source.error(
            f"CONFIDENCE takes more than 0 and less than 100 PERCENT, not {percent:g}",
            raw[0].start,
        )
    if percent <= 1 and not raw[1]:
        raise source.error(
            f"CONFIDENCE {percent:g} is ambiguous; write CONFIDENCE 95 PERCENT", raw[0].start
        )
    confidence = hundredth(percent)
    if 1.0 - confidence == 1.0:
        raise source.error(
            f"CONFIDENCE {percent:g} PERCENT cannot be told from 0; take more", raw[0].start
        )
    return confidence


def hundredth(percent: float) -> float:
    """Return the fraction nearest to the decimal that was written: 7 PERCENT is 0.07."""
    return float(Decimal(repr(percent)) / 100)


def _weight(raw: RawNumber | None, translator: Translator, source: SourceText) -> float:
    if raw is None:
        return 1.0
    weight = number_of(raw, "WEIGHT", translator, source)
    if not 0 < weight <= WEIGHT_MAX:
        raise source.error(
            f"WEIGHT takes a number over 0, at most {WEIGHT_MAX:g}, not {weight:g}", raw.start
        )
    return weight


def _reduction(
    raw: tuple[str, tuple[exp.Expr, ...]] | None, translator: Translator, source: SourceText
) -> ReductionClause | None:
    if raw is None:
        return None
    arguments: list[float | str] = []
    for node in raw[1]:
        value = translator.constant(node).value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise source.wrong(node, f"REDUCE BY takes numbers and strings, not {value!r}")
        arguments.append(value if isinstance(value, str) else float(value))
    return ReductionClause(raw[0], tuple(arguments))


# --- what it may cost ---------------------------------------------------------------------------


def _costing(raw: RawSelect, translator: Translator, source: SourceText) -> Costing | None:
    if not raw.costing:
        if raw.rewrites is not None:
            raise BadQuery("REWRITE says how limits may be kept; COSTING AT MOST says which")
        return None
    amounts: dict[str, float] = {}
    for number, unit in raw.costing:
        amount = number_of(number, "COSTING AT MOST", translator, source) * SIZES.get(unit, 1)
        resource = "NS" if unit == "NS" else "BYTES"
        if resource in amounts:
            raise source.error(f"COSTING has a limit of {unit} already", number.start)
        if not 0 < amount <= INT64_MAX:
            raise source.error(
                f"COSTING AT MOST takes more than 0 and less than 2^63 {resource}, not {amount:g}",
                number.start,
            )
        if resource == "BYTES" and not amount.is_integer():
            raise source.error(f"{amount:g} is no whole number of bytes", number.start)
        amounts[resource] = amount
    size_bytes = amounts.get("BYTES")
    rewrites = tuple(r for r in Rewrite if raw.rewrites is None or r.value in raw.rewrites)
    return Costing(None if size_bytes is None else int(size_bytes), amounts.get("NS"), rewrites)


# --- streams ------------------------------------------------------------------------------------


def tumbling(raw: RawSelect) -> RawSelect:
    """The query of a rollup: its window slides by its length unless it says how."""
    table = raw.select.args["from_"].this if raw.select.args.get("from_") else None
    window = table.meta.get(WINDOW) if isinstance(table, exp.Table) else None
    if isinstance(table, exp.Table) and window is not None and window.slide is None:
        table.meta[WINDOW] = replace(window, slide=window.length)
    return raw


def created_stream(
    raw: RawCreateStream, source: SourceText, bindings: Bindings, limits: Limits
) -> CreateStream:
    """The stream that was said.

    Raises:
      BadQuery: with the place.
    """
    translator = Translator(source, bindings, limits)
    columns: dict[str, ColumnDefinition] = {}
    for column in raw.columns:
        name = str(column.name.name)
        if name.lower() in columns:
            raise source.wrong(column.name, f"two columns are named {name!r}")
        if name.lower() in OWN_COLUMNS:
            raise source.wrong(
                column.name, f"a column cannot be named {name!r}: the archive has its own"
            )
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
        lateness_us = duration_us(raw.lateness, translator, source)
        if lateness_us < 0:
            raise source.error("LATENESS cannot be negative", raw.lateness.start)
    retain_us = None
    if raw.retain is not None:
        retain_us = positive_us(raw.retain, "RETAIN", translator, source)
    types = {column.name: column.type for column in columns.values()}
    return CreateStream(
        name=str(raw.name.name),
        columns=tuple(columns.values()),
        time_column=time.name,
        lateness_us=lateness_us,
        retain_us=retain_us,
        layout=DEFAULT_LAYOUT
        if raw.layout is None
        else said_layout(raw.layout, translator, source),
        if_not_exists=raw.if_not_exists,
        on_overload=resolved(raw.on_overload, types),
        foreign_keys=tuple(resolved_key(each, types) for each in raw.foreign_keys),
    )


def said_layout(raw: RawLayout, translator: Translator, source: SourceText) -> Layout:
    """The layout that was said.

    Raises:
      BadQuery: with the place.
    """
    arguments = [
        (name, number_of(number, "ARCHIVE", translator, source)) for name, number in raw.arguments
    ]
    try:
        return layout_of(raw.name, tuple(arguments))
    except BadQuery as error:
        raise source.error(str(error), raw.start) from None
