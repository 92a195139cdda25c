"""SUBSTRING, SPLIT_PART, REPLACE, REGEXP_EXTRACT and STRFTIME over Arrow arrays.

All arguments but the first are constants, which `check_constants` has accepted. No result is longer
than its argument, but for STRFTIME, so nested calls need no more memory than the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shedder.cql.expressions import calendar
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Expression, Literal, Op
from shedder.cql.expressions.text_patterns import group_pattern
from shedder.errors import BadQuery

NUMBER_MAX = (1 << 31) - 1  # Of a place, a length or a part: what Spark can say.
FORMAT_CHARACTERS_MAX = 64  # Of STRFTIME.
FORMAT_CODES = {
    "%Y": "yyyy",
    "%m": "MM",
    "%d": "dd",
    "%H": "HH",
    "%M": "mm",
    "%S": "ss",
    "%j": "DDD",
}
"""Codes of STRFTIME, in the words of Arrow and DuckDB, and of Java (Spark)."""

_NAMED = "(?P<part>"
_SHAPES = {
    Op.SUBSTRING: "SUBSTRING(x, start) or SUBSTRING(x, start, length)",
    Op.SPLIT_PART: "SPLIT_PART(x, separator, number)",
    Op.REPLACE: "REPLACE(x, old, new)",
    Op.REGEXP_EXTRACT: "REGEXP_EXTRACT(x, pattern) or REGEXP_EXTRACT(x, pattern, group)",
    Op.STRFTIME: "STRFTIME(t, format)",
}
TEXT_FUNCTIONS = frozenset(_SHAPES)


def text_call(name: str, args: tuple[Expression, ...]) -> Call:
    """The call of a function of TEXT_FUNCTIONS; arguments that may be left out are put in.

    Raises:
      BadQuery: wrong arguments; the message shows them.
    """
    op = Op[name]
    if op is Op.REGEXP_EXTRACT and len(args) == 2:
        args = (*args, Literal(0, ColumnType.BIGINT))
    check_constants(op, args)
    return Call(op, args)


def check_constants(op: Op, args: Sequence[Expression]) -> None:
    """Refuse constants that the function does not take.

    Raises:
      BadQuery: shows the value.
    """
    constants = [arg.value if isinstance(arg, Literal) else None for arg in args[1:]]
    match op, constants:
        case (Op.SUBSTRING, [int(start)]):
            _check_number("start", start, 1)
        case (Op.SUBSTRING, [int(start), int(length)]):
            _check_number("start", start, 1)
            _check_number("length", length, 0)
        case (Op.SPLIT_PART, [str(separator), int(number)]):
            if not separator:
                raise BadQuery("the separator of SPLIT_PART is empty; it has a character or more")
            _check_number("number", abs(number), 1)
        case (Op.REPLACE, [str(old), str(new)]):
            _check_replacement(old, new)
        case (Op.REGEXP_EXTRACT, [str(pattern), int(group)]):
            _check_number("group", group, 0)
            group_pattern(pattern, group)
        case (Op.STRFTIME, [str(form)]):
            _check_format(form)
        case _:
            raise BadQuery(f"write {_SHAPES[op]}; all but the first argument are constants")


def _check_number(what: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise BadQuery(f"the {what} is from {least} to {NUMBER_MAX:,}, not {value}")


def _check_replacement(old: str, new: str) -> None:
    if not old:
        raise BadQuery("REPLACE takes a text to look for; it is empty")
    if len(new.encode()) > len(old.encode()):
        raise BadQuery(
            f"REPLACE takes a new text of no more bytes than the old one, so that texts do not "
            f"grow: {new!r} has {len(new.encode())}, {old!r} has {len(old.encode())}"
        )


def _check_format(form: str) -> None:
    if len(form) > FORMAT_CHARACTERS_MAX:
        raise BadQuery(
            f"a format of {len(form)} characters; STRFTIME takes {FORMAT_CHARACTERS_MAX}"
        )
    codes = [part for part in format_parts(form) if part.startswith("%") and part != "%%"]
    for code in codes:
        if code not in FORMAT_CODES:
            raise BadQuery(f"STRFTIME takes {' '.join(FORMAT_CODES)} and %%, not {code!r}")
    if not codes:
        raise BadQuery(
            f"STRFTIME takes one of {' '.join(FORMAT_CODES)} in its format, not {form!r}"
        )


def format_parts(form: str) -> list[str]:
    """The codes of a format, and the texts between them."""
    return re.findall("%.?|[^%]+", form, re.DOTALL)


def _constants(node: Call) -> list[Any]:
    return [arg.value for arg in node.args[1:] if isinstance(arg, Literal)]


def _substring(node: Call, texts: Any) -> Any:
    start, *length = _constants(node)
    stop = start - 1 + length[0] if length else None
    return pc.utf8_slice_codeunits(texts, start=start - 1, stop=stop)


def _split_part(node: Call, texts: Any) -> Any:
    separator, number = _constants(node)
    splits = number if number > 0 else -1  # The parts behind the one that is asked stay together.
    parts = pc.split_pattern(texts, pattern=separator, max_splits=splits)
    bounds = np.asarray(parts.offsets, np.int64)
    at = bounds[:-1] + number - 1 if number > 0 else bounds[1:] + number
    missing = np.diff(bounds) < abs(number)
    found = pc.fill_null(parts.values.take(pa.array(at, mask=missing)), "")
    return _with_nulls_of(texts, found)


def _replace(node: Call, texts: Any) -> Any:
    old, new = _constants(node)
    return pc.replace_substring(texts, pattern=old, replacement=new)


def _regexp_extract(node: Call, texts: Any) -> Any:
    found = pc.extract_regex(texts, pattern=group_pattern(*_constants(node), opening=_NAMED))
    return _with_nulls_of(texts, pc.fill_null(pc.struct_field(found, "part"), ""))


def _strftime(node: Call, times: Any) -> Any:
    [form] = _constants(node)
    seconds = calendar.truncate(times, "SECOND").cast(pa.timestamp("s"))  # %S would have decimals.
    return pc.strftime(seconds, format=form)


def _with_nulls_of(texts: Any, found: Any) -> Any:
    if texts.null_count == 0:
        return found
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.string()))


EVALUATED: dict[Op, Callable[[Call, Any], Any]] = {
    Op.SUBSTRING: _substring,
    Op.SPLIT_PART: _split_part,
    Op.REPLACE: _replace,
    Op.REGEXP_EXTRACT: _regexp_extract,
    Op.STRFTIME: _strftime,
}
"""(call, array of the first argument) to the array of the results."""
