"""Names of types in CQL: which of our types each means."""

from __future__ import annotations

from sqlglot import exp

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.text.source_text import SourceText
from shedder.errors import Unimplemented

_TYPES = {
    exp.DType.BOOLEAN: ColumnType.BOOLEAN,
    exp.DType.TINYINT: ColumnType.INTEGER,
    exp.DType.SMALLINT: ColumnType.INTEGER,
    exp.DType.INT: ColumnType.INTEGER,
    exp.DType.BIGINT: ColumnType.BIGINT,
    exp.DType.FLOAT: ColumnType.DOUBLE,
    exp.DType.DOUBLE: ColumnType.DOUBLE,
    exp.DType.CHAR: ColumnType.VARCHAR,
    exp.DType.VARCHAR: ColumnType.VARCHAR,
    exp.DType.TEXT: ColumnType.VARCHAR,
    exp.DType.TIMESTAMP: ColumnType.TIMESTAMP,
    exp.DType.DATETIME: ColumnType.TIMESTAMP,
    exp.DType.DATE: ColumnType.DATE,
}
_KNOWN_TYPES = "BOOLEAN, INTEGER, BIGINT, DOUBLE, VARCHAR, TIMESTAMP, DATE"


def column_type(node: exp.DataType, source: SourceText) -> ColumnType:
    """The type that a type's name means.

    Raises:
      Unimplemented: we do not have it. BadQuery: it has a length or precision.
    """
    kind = _TYPES.get(node.this)
    shown = getattr(node.this, "value", str(node.this))
    if kind is None:
        hint = "; use DOUBLE" if shown == "DECIMAL" else ""
        shown = "BLOB or VARBINARY" if shown == "VARBINARY" else shown  # The parser has one word.
        raise Unimplemented(f"no type {shown}{hint}; there are {_KNOWN_TYPES}")
    if node.expressions:
        raise source.wrong(node, f"{shown} takes no length; a {kind.value} is of any length")
    return kind
