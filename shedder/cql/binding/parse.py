"""Text to statements: the door that every text of CQL comes through.

However hostile the text, the outcome is a statement, BadQuery or Unimplemented: length and nesting
are checked on the tokens, and the parser below has a cap on the nodes that it makes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from shedder.cql.binding.clause_checks import created_stream, said_layout, selected, tumbling
from shedder.cql.binding.expression_translation import Translator
from shedder.cql.binding.insert_checks import deleted, inserted
from shedder.cql.binding.relational_clauses import relational_select
from shedder.cql.binding.table_checks import created_table, updated
from shedder.cql.binding.view_checks import created_insert, created_view
from shedder.cql.expressions.literals import Bindings, Parameters
from shedder.cql.grammar.dialect import STATEMENT, Cql, CqlThinning
from shedder.cql.grammar.explain_node import RawExplain, RawExplainPrecision
from shedder.cql.grammar.parse_nodes import (
    RawAlterQuery,
    RawAlterStream,
    RawCreateQuery,
    RawCreateRollup,
    RawCreateStream,
    RawDelete,
    RawInsert,
    RawRelational,
    RawSelect,
)
from shedder.cql.grammar.table_grammar import RawCreateTable, RawUpdate
from shedder.cql.grammar.view_grammar import RawCreateInsert, RawCreateView
from shedder.cql.statements.relational_select import RelationalSelect
from shedder.cql.statements.statement import (
    AlterActivity,
    AlterBytes,
    AlterOverload,
    AlterQuery,
    AlterStream,
    AlterWeight,
    Backup,
    CreateIndex,
    CreateQuery,
    CreateRollup,
    Describe,
    DropIndex,
    DropQuery,
    DropRollup,
    DropStream,
    DropTable,
    DropView,
    Explain,
    ExplainAllocation,
    ExplainPrecision,
    Purge,
    Scrub,
    Select,
    Show,
    Statement,
)
from shedder.cql.text.size_limits import Limits, check_length, check_nesting
from shedder.cql.text.source_text import SourceText
from shedder.errors import BadQuery

DEFAULT_LIMITS = Limits()

_DIALECT = Cql()
_THINNING = CqlThinning()
_NUMBERED = re.compile(r"\$[1-9][0-9]{0,5}")


def parse(
    text: str,
    params: Parameters | None = None,
    limits: Limits = DEFAULT_LIMITS,
    dialect: Cql = _DIALECT,
) -> Statement:
    """The one statement of a text.

    Args:
      text: CQL; a semicolon may follow.
      params: values for `?` and `$1` (a sequence) or `:name` (a mapping); they become literals of
        the tree and are never read as text.
      limits: what the text may cost.
      dialect: its grammar.

    Raises:
      BadQuery: with line, column and what was expected. Unimplemented: not of this version.
    """
    statements = parse_script(text, params, limits, dialect)
    if len(statements) != 1:
        raise BadQuery(f"expected one statement, got {len(statements)}")
    return statements[0]


def parse_thinning(query: str, text: str, limits: Limits = DEFAULT_LIMITS) -> AlterQuery:
    """The statement ALTER QUERY query SET THINNING text.

    Raises:
      BadQuery, Unimplemented: as `parse`, with the place in `text`.
    """
    statement = parse(text, None, limits, _THINNING)
    assert isinstance(statement, AlterQuery)
    return replace(statement, name=query)


def parse_script(
    text: str,
    params: Parameters | None = None,
    limits: Limits = DEFAULT_LIMITS,
    dialect: Cql = _DIALECT,
) -> list[Statement]:
    """All statements of a text, separated by semicolons. `?` are counted through the text.

    Raises:
      BadQuery, Unimplemented: as `parse`.
    """
    check_length(text, limits)
    source = SourceText(text)
    bindings = Bindings(params)
    tokens = _marked(_tokens(source))
    parts = [part for part in _split(tokens) if part]
    statements = [_statement(part, source, bindings, limits, dialect) for part in parts]
    bindings.check_used()
    return statements


def _tokens(source: SourceText) -> list[Token]:
    try:
        tokens: list[Token] = _DIALECT.tokenize(source.text)
    except (TokenError, ValueError, RecursionError) as error:
        raise source.error(_lexical_problem(source.text), None) from error
    return tokens


def _lexical_problem(text: str) -> str:
    for opening, what in (("'", "string"), ('"', "quoted name")):
        if text.count(opening) % 2:
            return f"a {what} is not closed: a {opening} is missing"
    return "the text cannot be read: a string, quoted name or comment is not closed"


def _marked(tokens: list[Token]) -> list[Token]:
    """Make each `?`, `$1` and `:name` one token whose text says which parameter it is."""
    marked: list[Token] = []
    placeholders = 0
    for token in tokens:
        previous = marked[-1] if marked else None
        if token.token_type is TokenType.PLACEHOLDER:
            placeholders += 1
            marked.append(_mark(token, f"?{placeholders}"))
        elif token.token_type is TokenType.VAR and _NUMBERED.fullmatch(token.text):
            marked.append(_mark(token, token.text))
        elif previous is not None and _names(previous, token):
            marked[-1] = _mark(token, f":{token.text}")
        else:
            marked.append(token)
    return marked


def _names(colon: Token, token: Token) -> bool:
    adjacent = colon.token_type is TokenType.COLON and colon.end + 1 == token.start
    return adjacent and token.text.isidentifier()


def _mark(token: Token, text: str) -> Token:
    return Token(
        TokenType.PLACEHOLDER,
        text,
        line=token.line,
        col=token.col,
        start=token.start,
        end=token.end,
    )


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _statement(
    tokens: list[Token], source: SourceText, bindings: Bindings, limits: Limits, dialect: Cql
) -> Statement:
    check_nesting(tokens, source, limits)
    try:
        nodes = dialect.parser(max_nodes=limits.nodes_max).parse(tokens, source.text)
        if len(nodes) != 1:  # Seen once, of random text.
            raise source.error("this is no statement", tokens[0].start)
        [node] = nodes
        assert isinstance(node, exp.Expr)
        return _meaning(node.meta[STATEMENT], source, bindings, limits)
    except ParseError as error:
        raise _located(error, source, limits) from error
    except RecursionError as error:
        raise source.error("nested too deeply", tokens[0].start) from error


def _meaning(raw: object, source: SourceText, bindings: Bindings, limits: Limits) -> Statement:
    match raw:
        case RawSelect() | RawRelational():
            return _query(raw, source, bindings, limits)
        case RawCreateStream():
            return created_stream(raw, source, bindings, limits)
        case RawCreateTable():
            return created_table(raw, source)
        case RawUpdate():
            return updated(raw, source, bindings, limits)
        case RawDelete():
            return deleted(raw, source, bindings, limits)
        case RawInsert():
            return inserted(raw, source, bindings, limits)
        case RawCreateQuery():
            query = _query(raw.select, source, bindings, limits)
            return CreateQuery(raw.name, query, raw.if_not_exists)
        case RawCreateView():
            return created_view(raw, source, bindings, limits)
        case RawCreateInsert():
            return created_insert(raw, source, bindings, limits)
        case RawCreateRollup():
            select = selected(tumbling(raw.select), source, bindings, limits)
            return CreateRollup(raw.name, select, raw.if_not_exists, raw.lazy)
        case RawExplain():
            return _explained(raw, source, bindings, limits)
        case RawExplainPrecision(str(name)):
            return ExplainPrecision(name)
        case RawExplainPrecision(RawSelect() | RawRelational() as query):
            return ExplainPrecision(_query(query, source, bindings, limits))
        case RawAlterStream(name, layout):
            translator = Translator(source, bindings, limits)
            return AlterStream(name, said_layout(layout, translator, source))
        case RawAlterQuery():
            translator = Translator(source, bindings, limits)
            return AlterQuery(raw.name, raw.level, tuple(map(translator.expression, raw.of)))
        case (
            DropStream()
            | DropTable()
            | DropView()
            | DropQuery()
            | DropRollup()
            | Backup()
            | Scrub()
            | Purge()
            | CreateIndex()
            | DropIndex()
            | Show()
            | AlterWeight()
            | AlterBytes()
            | AlterActivity()
            | AlterOverload()
            | ExplainAllocation()
            | Describe()
        ):
            return raw
    raise AssertionError(raw)


def _explained(raw: RawExplain, source: SourceText, bindings: Bindings, limits: Limits) -> Explain:
    match raw.subject:
        case RawSelect() | RawRelational() as explained:
            return Explain(_query(explained, source, bindings, limits))
        case RawCreateQuery() as created:
            query = _query(created.select, source, bindings, limits)
            return Explain(CreateQuery(created.name, query, created.if_not_exists))
        case RawCreateView() as created:
            return Explain(created_view(created, source, bindings, limits))
        case RawCreateInsert() as created:
            return Explain(created_insert(created, source, bindings, limits))
        case str(name):
            return Explain(name)
    raise AssertionError(raw)


def _query(
    raw: RawSelect | RawRelational, source: SourceText, bindings: Bindings, limits: Limits
) -> Select | RelationalSelect:
    if isinstance(raw, RawRelational):
        return relational_select(raw, source, bindings, limits)
    return selected(raw, source, bindings, limits)


def _located(error: ParseError, source: SourceText, limits: Limits) -> BadQuery:
    """The parser's complaint in our words, with the place where the token begins."""
    [what, *_] = error.errors or [{}]
    description = str(what.get("description") or error)
    if "Maximum number of AST nodes" in description:
        return source.error(f"the statement has more than {limits.nodes_max:,} parts", 0)
    if "Invalid expression / Unexpected token" in description:
        found = str(what.get("highlight") or "the end")
        description = f"unexpected {found!r}"
    if description.startswith("Required keyword"):
        description = "an expression is missing here"
    line, column = what.get("line"), what.get("col")
    if line is None or column is None:
        return source.error(description, None)
    start = source.offset(line, column - len(str(what.get("highlight") or "x")) + 1)
    return source.error(description[0].lower() + description[1:], start)
