"""Answers on stdout, in the format that was asked for."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from io import IOBase
from typing import IO, Any, TextIO, assert_never, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from shedder.cli.stderr import say
from shedder.errors import BadSetting
from shedder.queries.answers.answer import Answer
from shedder.queries.answers.control_characters import escaped_lines
from shedder.queries.answers.python_rows import plain_rows
from shedder.queries.answers.text_format import printed

FACTS = b"shedder.answer"  # schema metadata of Arrow and Parquet output: Answer.facts() as JSON


class Format(Enum):
    """How answers are written. Without `-o`: table on a terminal, NDJSON into a pipe."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


def chosen(wanted: Format | None, out: TextIO) -> Format:
    """The format that was asked for, or the natural one for where the output goes.

    Raises:
      BadSetting: binary output would go to a terminal.
    """
    if wanted is None:
        return Format.TABLE if out.isatty() else Format.NDJSON
    if wanted in (Format.ARROW, Format.PARQUET) and out.isatty():
        raise BadSetting(f"-o {wanted.value} is binary: send it to a file or a pipe")
    return wanted


def is_status(answer: Answer) -> bool:
    """Return whether this is what a statement says about itself (`stream x created`), not data."""
    return not answer.query and answer.table.column_names == ["status"]


def write(answer: Answer, form: Format) -> None:
    """Write one answer to stdout and flush."""
    match form:
        case Format.TABLE:
            show_table(answer)
        case Format.JSON:
            document = {**answer.facts(), "rows": answer.rows()}
            _text(_json(document, indent=1) + "\n")
        case Format.NDJSON:
            _text(ndjson(answer.table))
        case Format.CSV:
            _csv(flat(answer.table))
        case Format.ARROW:
            _binary(lambda out: _write_arrow(_with_facts(answer), out))
        case Format.PARQUET:
            _binary(lambda out: pq.write_table(_with_facts(answer), out))
        case _:
            assert_never(form)


def show_table(answer: Answer, rows_total: int | None = None) -> None:
    """Write an answer to stdout as a table for people; rows_total: as for `printed`."""
    _text(_tinted(printed(answer, _columns(), rows_total)) + "\n")


def ndjson(table: pa.Table) -> str:
    """Rows as JSON, a line each."""
    return "".join(_json(row) + "\n" for row in plain_rows(table))


def _csv(table: pa.Table) -> None:
    """CSV as it is into a file or pipe; on a terminal, control characters are escaped."""
    if not sys.stdout.isatty():
        _binary(lambda out: pa_csv.write_csv(table, out))
        return
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink)
    _text(escaped_lines(sink.getvalue().to_pybytes().decode()))


def _tinted(table: str) -> str:
    """What promises nothing is red, where there are colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return table
    return re.sub(r"\S* \(no bound\)", "\x1b[31m\\g<0>\x1b[0m", table)


def _columns() -> int | None:
    """Characters to a line, where lines break by themselves; None: they do not."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _text(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _binary(write_to: Callable[[IO[bytes]], None]) -> None:
    """Bytes go below the text layer; what is in it goes first."""
    sys.stdout.flush()
    write_to(sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _write_arrow(table: pa.Table, out: IO[bytes]) -> None:
    with pa.ipc.new_stream(pa.PythonFile(cast(IOBase, out), mode="w"), table.schema) as writer:
        writer.write_table(table)


def _with_facts(answer: Answer) -> pa.Table:
    facts = _json(answer.facts()).encode()
    return answer.table.replace_schema_metadata(
        {**(answer.table.schema.metadata or {}), FACTS: facts}
    )


def flat(table: pa.Table) -> pa.Table:
    """CSV has no lists: a TOP column becomes its JSON."""
    for at, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            cells = (cell for [cell] in map(dict.values, plain_rows(table.select([at]))))
            texts = [None if cell is None else _json(cell) for cell in cells]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    return table


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_with_words(value), default=_plain, allow_nan=False, indent=indent)


def _with_words(value: Any) -> Any:
    """The same with the word for each infinity and NaN, as JSON of Protobuf has them."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case dict():
            return {name: _with_words(part) for name, part in value.items()}
        case list() | tuple():
            return [_with_words(part) for part in value]
        case _:
            return value


def _plain(value: Any) -> str:
    """What JSON lacks: moments (UTC, as ISO 8601) and dates."""
    match value:
        case np.datetime64():
            return f"{value}{'' if value.dtype == 'M8[D]' else 'Z'}"
        case datetime():
            return value.isoformat() + ("" if value.tzinfo else "Z")
        case date():
            return value.isoformat()
        case _:
            return str(value)


def show(answer: Answer, form: Format, *, quiet: bool = False) -> None:
    """Write an answer to stdout, and its sources to stderr; a status goes to stderr only."""
    if is_status(answer):
        say(answer.table["status"][0].as_py())
        return
    write(answer, form)
    show_facts(answer, answer.table.num_rows, quiet=quiet)


def show_facts(answer: Answer, rows: int, *, quiet: bool) -> None:
    """Write to stderr where an answer of so many rows came from; that it was cut, in any case."""
    if answer.cut:
        say(f"not all rows: {answer.cut}", "yellow")
    if not quiet:
        say(footer(answer, rows), "dim")
        for note in answer.notes:
            say(note, "yellow")


def footer(answer: Answer, rows: int) -> str:
    """One line under a table: rows, window, sources, time."""
    parts = [f"{rows:,} row{'' if rows == 1 else 's'}"]
    start, end = answer.window
    if start is not None or end is not None:
        stretch = f"[{_moment(start)}, {_moment(end)})"
        parts.append(stretch if answer.complete else f"{stretch} still open")
    if answer.sources:
        parts.append("from " + ", ".join(answer.sources))
    if answer.late:
        parts.append(f"{answer.late:,} came too late")
    if answer.resume:
        parts.append(f"resume after {answer.resume}")
    if answer.elapsed_ms:
        parts.append(f"{answer.elapsed_ms:,.1f} ms")
    return " · ".join(parts)


def _moment(moment: object) -> str:
    return "…" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
