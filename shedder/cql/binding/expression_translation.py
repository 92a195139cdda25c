"""Syntax trees of sqlglot to our expressions. Types are not looked at, parameters are bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import (
    Aggregate,
    AggregateFunction,
    Call,
    Column,
    Expression,
    Literal,
    Op,
    chained,
    size_of,
)
from shedder.cql.expressions.functions import (
    AGGREGATES,
    PARTS,
    aggregate,
    quantile_rank,
    scalar,
    unit_named,
)
from shedder.cql.expressions.histograms import (
    edges_of,
    equal_edges,
    histogram,
    is_histogram,
    value_of,
)
from shedder.cql.expressions.literals import NULL, Bindings, converted, integer, number
from shedder.cql.expressions.type_names import column_type
from shedder.cql.text.durations import interval_us
from shedder.cql.text.size_limits import Limits
from shedder.cql.text.source_text import SourceText
from shedder.cql.text.unsupported import stars_alone
from shedder.errors import BadQuery, Unimplemented

_BINARY: dict[type[exp.Expr], Op] = {
    exp.Add: Op.ADD,
    exp.Sub: Op.SUB,
    exp.Mul: Op.MUL,
    exp.Div: Op.DIV,
    exp.Mod: Op.MOD,
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
    exp.DPipe: Op.CONCAT,
}


class Translator:
    """One statement's way from sqlglot's tree to ours."""

    def __init__(
        self,
        source: SourceText,
        bindings: Bindings,
        limits: Limits,
        names: Sequence[str] = (),
        *,
        subquery: Callable[[exp.Expr], str] | None = None,
    ) -> None:
        """Begin a statement, or one query of a relational statement.

        Args:
          source: the text.
          bindings: values of its parameters.
          limits: of the text.
          names: what may stand before a column and a dot: the stream's names.
          subquery: reads a subquery of an expression and returns its canonical text; columns keep
            what stands before their dot. None: the query is of one stream and has no subqueries.
        """
        self._subquery = subquery
        self._source = source
        self._bindings = bindings
        self._limits = limits
        self._names = {name.lower() for name in names}
        self._depth = 0
        self._size = 0  # of the expressions that are done

    def expression(self, node: exp.Expr | None) -> Expression:
        """The expression that a tree means.

        Raises:
          BadQuery: with the place. Unimplemented: it is SQL, but not of this version.
        """
        if node is None:
            raise BadQuery("an expression is missing")
        self._depth += 1
        if self._depth > self._limits.levels_max:
            raise self._source.wrong(
                node,
                f"the expression has more than {self._limits.levels_max} levels",
            )
        try:
            found = self._translated(node)
            self._check_size(found)
            return found
        except BadQuery as error:
            if str(error).startswith("line "):
                raise
            raise self._source.wrong(node, str(error)) from error
        except ValueError as error:
            raise self._source.wrong(node, str(error)) from error
        finally:
            self._depth -= 1

    def _check_size(self, found: Expression) -> None:
        """Refuse an expression that expands to too much, before any pass walks through it."""
        size = self._size + size_of(found)
        if size > self._limits.expanded_max:
            raise BadQuery(
                "written out, the expressions of the statement have more than "
                f"{self._limits.expanded_max:,} parts"
            )
        if self._depth == 1:
            self._size = size

    def constant(self, node: exp.Expr) -> Literal:
        """The constant that a tree means.

        Raises:
          BadQuery: it is none.
        """
        found = self.expression(node)
        if not isinstance(found, Literal):
            raise self._source.wrong(node, "expected a constant")
        return found

    def interval(self, amount: exp.Expr, unit: str | None) -> Literal:
        """An interval as its microseconds, a BIGINT.

        Raises:
          ValueError: it is no fixed length.
        """
        value = self.constant(amount).value
        if value is None or isinstance(value, bool):
            raise ValueError(f"a duration cannot be {value}")
        if isinstance(amount, exp.Placeholder) and unit is None and isinstance(value, int):
            return integer(value)  # a bound timedelta
        text = f"{value:f}" if isinstance(value, float) else str(value)
        return integer(interval_us(text, unit))

    def _translated(self, node: exp.Expr) -> Expression:
        check_details(node)
        op = _BINARY.get(type(node))
        if op is not None:
            return Call(op, (self.expression(node.this), self.expression(node.expression)))
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise Unimplemented(f"{_shown(node)}: not in this version")
        found = handler(self, node)
        return Call(Op.NOT, (found,)) if node.args.get("negate") else found

    # --- leaves -------------------------------------------------------------------------------

    def _star(self, _: exp.Star) -> Expression:
        raise stars_alone("*")

    def _column(self, node: exp.Column) -> Expression:
        if isinstance(node.this, exp.Star):
            raise stars_alone(f"{node.table}.*")
        if self._subquery is not None and not node.args.get("db"):
            return Column(node.name, qualifier=node.table or None)
        if node.args.get("db") or (node.table and node.table.lower() not in self._names):
            raise BadQuery(f"{node.sql()!r}: no stream {node.table!r} in this query")
        return Column(node.name)

    def _literal(self, node: exp.Literal) -> Expression:
        return Literal(node.name, ColumnType.VARCHAR) if node.is_string else number(node.name)

    def _negative(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number(node.this.name, negative=True)
        return Call(Op.NEG, (self.expression(node.this),))

    def _parameter(self, node: exp.Placeholder) -> Expression:
        return self._bindings.value(str(node.this))

    def _interval(self, node: exp.Interval) -> Expression:
        unit = node.args.get("unit")
        return self.interval(node.this, None if unit is None else unit.name)

    # --- conditions ---------------------------------------------------------------------------

    def _chain(self, node: exp.And | exp.Or) -> Expression:
        """AND and OR are associative: a chain becomes a balanced tree, however it is bracketed."""
        op = Op.AND if isinstance(node, exp.And) else Op.OR
        kind, terms, rest = type(node), list[Expression](), list[exp.Expr]([node])
        while rest:
            part = rest.pop()
            inner = part
            while isinstance(inner, exp.Paren):
                inner = inner.this
            if type(inner) is kind:
                rest.extend((inner.expression, inner.this))
            else:  # A BETWEEN is a chain, too.
                terms.extend(chained(op, self.expression(part)))
        return balanced(op, terms)

    def _is(self, node: exp.Is) -> Expression:
        inner = self.expression(node.this)
        if isinstance(node.expression, exp.Null):
            return Call(Op.IS_NULL, (inner,))
        if isinstance(node.expression, exp.Boolean):
            wanted = inner if node.expression.this else Call(Op.NOT, (inner,))
            return Call(Op.COALESCE, (wanted, Literal(False, ColumnType.BOOLEAN)))
        raise Unimplemented(f"IS {_shown(node.expression)}: not in this version")

    def _between(self, node: exp.Between) -> Expression:
        if node.args.get("symmetric"):
            raise Unimplemented("BETWEEN SYMMETRIC: not in this version")
        inner = self.expression(node.this)
        low, high = self.expression(node.args["low"]), self.expression(node.args["high"])
        return Call(Op.AND, (Call(Op.GE, (inner, low)), Call(Op.LE, (inner, high))))

    def _query(self, node: exp.Query) -> Expression:
        return Call(Op.QUERY, (self._query_text(node),))

    def _exists(self, node: exp.Exists) -> Expression:
        return Call(Op.EXISTS, (self._query_text(node.this),))

    def _query_text(self, node: exp.Expr) -> Literal:
        if self._subquery is None or not isinstance(node, exp.Query):
            raise Unimplemented(f"{_shown(node)}: not in this version")
        return Literal(self._subquery(node), ColumnType.VARCHAR)

    def _in(self, node: exp.In) -> Expression:
        query = node.args.get("query")
        if query is not None:
            return Call(Op.IN_QUERY, (self.expression(node.this), self._query_text(query)))
        if not node.expressions:
            raise Unimplemented("IN over anything but a list in brackets: not in this version")
        inner = self.expression(node.this)
        items = [self.expression(item) for item in node.expressions]
        if all(isinstance(item, Literal) for item in items):
            return Call(Op.IN, (inner, *items))
        return balanced(Op.OR, [Call(Op.EQ, (inner, item)) for item in items])

    def _like(self, node: exp.Like) -> Expression:
        return Call(Op.LIKE, (self.expression(node.this), self.expression(node.expression)))

    def _escape(self, node: exp.Escape) -> Expression:
        if not isinstance(node.expression, exp.Literal) or node.expression.name != "\\":
            raise Unimplemented("LIKE ... ESCAPE: only the backslash escapes")
        return self.expression(node.this)

    def _same(self, node: exp.NullSafeEQ) -> Expression:
        left, right = self.expression(node.this), self.expression(node.expression)
        both = Call(Op.AND, (Call(Op.IS_NULL, (left,)), Call(Op.IS_NULL, (right,))))
        equal = Call(Op.COALESCE, (Call(Op.EQ, (left, right)), Literal(False, ColumnType.BOOLEAN)))
        return Call(Op.OR, (equal, both))

    def _case(self, node: exp.Case) -> Expression:
        subject = None if node.this is None else self.expression(node.this)
        args: list[Expression] = []
        for branch in node.args["ifs"]:
            condition = self.expression(branch.this)
            if subject is not None:
                condition = Call(Op.EQ, (subject, condition))
            args += [condition, self.expression(branch.args["true"])]
        default = node.args.get("default")
        return Call(Op.CASE, (*args, NULL if default is None else self.expression(default)))

    # --- functions ----------------------------------------------------------------------------

    def _cast(self, node: exp.Cast) -> Expression:
        kind = column_type(node.to, self._source)
        inner = self.expression(node.this)
        match inner, kind:
            case (Literal(value=str(text)), _):
                return converted(text, kind)
            case (Literal(value=int(value), type=ColumnType.BIGINT), ColumnType.TIMESTAMP):
                return Literal(value, kind)
            case (Literal(value=int(value), type=ColumnType.BIGINT), ColumnType.DATE) if (
                -(1 << 31) <= value < 1 << 31
            ):
                return Literal(value, kind)
        return Call(Op.CAST, (inner,), kind)

    def _extract(self, node: exp.Extract) -> Expression:
        unit = unit_named(node.this.name, PARTS)
        return Call(Op.EXTRACT, (unit, self.expression(node.expression)))

    def _function(self, node: exp.Anonymous) -> Expression:
        name = node.name.upper()
        distinct = False
        nodes: list[exp.Expr] = list(node.expressions)
        if nodes and isinstance(nodes[0], exp.Distinct):
            distinct, nodes = True, list(nodes[0].expressions)
        if name == "COUNT" and len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            nodes = []
        if name == "HISTOGRAM" and len(nodes) == 2 and isinstance(nodes[1], exp.Array):
            edges = [self.expression(part) for part in nodes[1].expressions]
            return histogram(self.expression(nodes[0]), edges)
        args = tuple(self.expression(part) for part in nodes)
        if name == "HISTOGRAM":
            return histogram(args[0] if args else NULL, equal_edges(args[1:]))
        if name in AGGREGATES:
            if name == "COUNT" and not args and not node.expressions:
                return aggregate(name, (), distinct=False)  # COUNT() is COUNT(*)
            return aggregate(name, args, distinct=distinct)
        if distinct:
            raise BadQuery(f"DISTINCT makes no sense in {name}")
        if name in ("COUNT_IF", "COUNTIF") and len(args) == 1:
            return Aggregate(AggregateFunction.COUNT, _only_where(args[0], integer(1)))
        if name == "NOW" and not args and self._subquery is not None:
            return Call(Op.NOW, ())
        if name == "PREV" and self._subquery is not None:
            return Call(Op.PREV, args)
        if name == "CDF" and len(args) == 2:
            return _share_up_to(*args)
        return scalar(name, args)

    def _filter(self, node: exp.Filter) -> Expression:
        inner = self.expression(node.this)
        if is_histogram(inner):
            condition = self.expression(node.expression.this)
            return histogram(_only_where(condition, value_of(inner)), edges_of(inner))
        if not isinstance(inner, Aggregate):
            raise BadQuery("FILTER belongs to an aggregate")
        condition = self.expression(node.expression.this)
        argument = _only_where(condition, inner.argument or integer(1))
        second = inner.second
        if second is not None and inner.function is AggregateFunction.JOIN_SIZE:
            second = _only_where(condition, second)  # Each side by itself; pairs go together.
        return replace(inner, argument=argument, second=second)

    def _within_group(self, node: exp.WithinGroup) -> Expression:
        call, order = node.this, node.expression
        if not isinstance(call, exp.Anonymous) or call.name.upper() != "PERCENTILE_DISC":
            raise Unimplemented(
                "WITHIN GROUP: only PERCENTILE_DISC(q) WITHIN GROUP (ORDER BY x); "
                "QUANTILE(x, q) is the same"
            )
        keys = order.expressions
        if len(keys) != 1 or len(call.expressions) != 1 or keys[0].args.get("desc"):
            raise BadQuery("PERCENTILE_DISC(q) WITHIN GROUP (ORDER BY x) takes one q, one x")
        rank = quantile_rank(self.expression(call.expressions[0]))
        return Aggregate(AggregateFunction.QUANTILE, self.expression(keys[0].this), rank)


def check_details(node: exp.Expr) -> None:
    """Refuse a node that says more than we read, so that nothing is silently left away."""
    known = _DETAILS.get(type(node), set()) | {"this", "expression", "expressions", "negate"}
    for name, value in node.args.items():
        if value and name not in known:
            if isinstance(node, exp.Window):
                raise Unimplemented("OVER: not in this version")
            raise Unimplemented(f"{name.upper()} with {_shown(node)}: not in this version")


def balanced(op: Op, terms: Sequence[Expression]) -> Expression:
    """One tree of a chain of AND or OR, as flat as it can be: depth log2 of the terms."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    return Call(op, (balanced(op, terms[:half]), balanced(op, terms[half:])))


def _share_up_to(x: Expression, v: Expression) -> Aggregate:
    """CDF(x, v): the average of 1 where x <= v and 0 where x > v, so that NULLs are left out."""
    one, zero = Literal(1.0, ColumnType.DOUBLE), Literal(0.0, ColumnType.DOUBLE)
    below, above = Call(Op.LE, (x, v)), Call(Op.GT, (x, v))
    return Aggregate(AggregateFunction.AVG, Call(Op.CASE, (below, one, above, zero, NULL)))


def _only_where(condition: Expression, value: Expression) -> Expression:
    return Call(Op.CASE, (condition, value, NULL))


def _shown(node: exp.Expr) -> str:
    names: dict[type[exp.Expr], str] = {
        exp.Subquery: "a subquery in this place",
        exp.Select: "a subquery in this place",
        exp.Exists: "EXISTS in this place",
        exp.Window: "OVER",
        exp.ILike: "ILIKE; write LOWER(x) LIKE '...'",
        exp.IntDiv: "integer division; write FLOOR(a / b)",
        exp.Pow: "a power",
        exp.Bracket: "[...] after an expression",
        exp.Any: "ANY; write IN (SELECT ...) or compare with MIN or MAX",
        exp.All: "ALL; compare with MIN or MAX",
        exp.GroupingSets: "GROUPING SETS",
        exp.Rollup: "ROLLUP in GROUP BY",
        exp.Cube: "CUBE in GROUP BY",
    }
    return names.get(type(node), type(node).__name__)


# What nodes say beside their operands.
_DETAILS: dict[type[exp.Expr], set[str]] = {
    exp.Column: {"table", "db", "catalog"},
    exp.Literal: {"is_string"},
    exp.Div: {"typed", "safe"},
    exp.DPipe: {"safe"},
    exp.Between: {"low", "high", "symmetric"},
    exp.In: {"query", "field", "unnest"},
    exp.Case: {"ifs", "default"},
    exp.Cast: {"to"},
    exp.TryCast: {"to", "safe", "requires_string"},
    exp.Interval: {"unit"},
}

_HANDLERS: dict[type[exp.Expr], Callable[[Translator, Any], Expression]] = {
    exp.Star: Translator._star,
    exp.Column: Translator._column,
    exp.Literal: Translator._literal,
    exp.Boolean: lambda _, node: Literal(bool(node.this), ColumnType.BOOLEAN),
    exp.Null: lambda *_: NULL,
    exp.Placeholder: Translator._parameter,
    exp.Paren: lambda self, node: self.expression(node.this),
    exp.Neg: Translator._negative,
    exp.Interval: Translator._interval,
    exp.And: Translator._chain,
    exp.Or: Translator._chain,
    exp.Not: lambda self, node: Call(Op.NOT, (self.expression(node.this),)),
    exp.Is: Translator._is,
    exp.Between: Translator._between,
    exp.In: Translator._in,
    exp.Exists: Translator._exists,
    exp.Subquery: Translator._query,
    exp.Select: Translator._query,
    exp.Like: Translator._like,
    exp.Escape: Translator._escape,
    exp.NullSafeEQ: Translator._same,
    exp.NullSafeNEQ: lambda self, node: Call(Op.NOT, (self._same(node),)),
    exp.Case: Translator._case,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Extract: Translator._extract,
    exp.Anonymous: Translator._function,
    exp.Filter: Translator._filter,
    exp.WithinGroup: Translator._within_group,
}
