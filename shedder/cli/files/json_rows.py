"""Rows of NDJSON files and JSON arrays: values as text, by the paths of their keys.

DuckDB parses JSON. Text is kept for numbers, so no digit is lost before a column's type is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shedder.cli.files.bad_rows import BadRows, shown
from shedder.cli.files.rows import NumberedRows, numbered
from shedder.errors import BadBatch

if TYPE_CHECKING:
    import duckdb

_BLOCK_BYTES = 4 << 20
_LINE_BYTES_MAX = 64 << 20
_ARRAY_BYTES_MAX = 256 << 20  # A JSON array is parsed in one piece, in memory.
_BLANKS = re.compile(r"[ \t\r\n]*")
_PATHS_MAX = 5_000  # Distinct keys; data in keys, such as identifiers, makes no columns.


@dataclass(slots=True)
class JsonLayout:
    """Keys of all objects of a file, nested ones joined by dots.

    pointers: name to JSON pointer. kinds: name to the types that its values have in DuckDB's words.
    rows: of the file.
    """

    pointers: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, set[str]] = field(default_factory=dict)
    rows: int = 0


def json_layout(text: IO[bytes], name: str, bad: BadRows) -> JsonLayout:
    """Read all keys of a file and the kinds of their values.

    Raises:
      BadBatch: a row is not an object, or has a key twice.
    """
    import duckdb  # Other commands load the command line without it.

    layout = JsonLayout()
    with closing(duckdb.connect(config={"threads": 1})) as database:
        for rows in _objects(database, text, name, bad):
            layout.rows += rows.batch.num_rows
            database.register("objects", pa.table(rows.batch.columns, names=["j"]))
            ((found,),) = database.sql(
                "SELECT json_group_structure(CAST(j AS JSON)) FROM objects"
            ).fetchall()
            database.unregister("objects")
            if found is not None:
                _add(layout, json.loads(found), "", "", name)
    return layout


def json_rows(
    text: IO[bytes],
    name: str,
    pointers: Mapping[str, str],
    wanted: Sequence[str],
    bad: BadRows,
) -> Iterator[NumberedRows]:
    """All rows, with the values of the wanted names as text; JSON null and no key are NULL.

    A value that is an array or an object is its JSON text.
    """
    import duckdb

    pointed = [pointers.get(each) for each in wanted]
    chosen = ", ".join(_value(pointer, at) for at, pointer in enumerate(pointed))
    doubtful = " OR ".join(_is_doubtful(pointer) for pointer in pointed if pointer is not None)
    with closing(duckdb.connect(config={"threads": 1})) as database:
        for rows in _objects(database, text, name, bad, _inner(pointers.values())):
            objects = rows.batch.column(0)
            database.register("objects", pa.table([objects], names=["j"]))
            table = database.sql(
                f"SELECT {chosen}, {doubtful or 'false'} AS doubtful FROM objects"  # noqa: S608
            ).to_arrow_table()
            database.unregister("objects")
            columns = [_whole(column) for column in table.columns]
            rounded = np.flatnonzero(np.asarray(columns.pop().fill_null(False)))
            if rounded.size:
                columns = _as_written(columns, objects, pointed, rounded)
            yield NumberedRows(
                rows.numbers, pa.RecordBatch.from_arrays(columns, names=list(wanted))
            )


def _value(pointer: str | None, at: int) -> str:
    if pointer is None:
        return f"CAST(NULL AS VARCHAR) AS c{at}"
    return f"j ->> {_quoted(pointer)} AS c{at}"


def _is_doubtful(pointer: str) -> str:
    """SQL that is true where DuckDB may have rounded a number: its digits are not in the text."""
    value = f"(j ->> {_quoted(pointer)})"
    written = " OR ".join(f"contains(j, {value} || '{end}')" for end in (",", "}", " ", "\n"))
    is_double = f"json_type(j, {_quoted(pointer)}) = 'DOUBLE'"
    return f"(regexp_matches(j, '[0-9][0-9.]{{15}}') AND {is_double} AND NOT ({written}))"


def _as_written(
    columns: list[pa.Array[Any]],
    objects: pa.Array[Any],
    pointers: Sequence[str | None],
    doubtful: NDArray[np.int64],
) -> list[pa.Array[Any]]:
    """The columns with the numbers of doubtful rows as they are written. Such rows are few."""
    parsed = [json.loads(objects[int(at)].as_py(), parse_float=str) for at in doubtful]
    mask = np.zeros(len(objects), np.bool_)
    mask[doubtful] = True
    for at, pointer in enumerate(pointers):
        if pointer is not None:
            found = [_at(row, pointer) for row in parsed]
            old = columns[at].take(doubtful).to_pylist()
            new = [
                number if isinstance(number, str) and _same_number(number, text) else text
                for number, text in zip(found, old, strict=True)
            ]
            columns[at] = pc.replace_with_mask(
                columns[at], pa.array(mask), pa.array(new, columns[at].type)
            )
    return columns


def _at(value: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        value = value.get(key.replace("~1", "/").replace("~0", "~")) if value else None
    return value


def _same_number(written: str, read: str | None) -> bool:
    """Return whether a text is a number that DuckDB has read as this one."""
    try:
        return read is not None and float(written) == float(read)
    except ValueError:
        return False


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _add(layout: JsonLayout, structure: Any, name: str, pointer: str, file: str) -> None:
    """Add the leaves of a structure as DuckDB describes it; an empty object has none."""
    if isinstance(structure, dict):
        for key, part in structure.items():
            path = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            _add(layout, part, f"{name}.{key}" if name else key, path, file)
        return
    kind = structure if isinstance(structure, str) else "JSON"
    if layout.pointers.setdefault(name, pointer) != pointer:
        raise BadBatch(f"{file}: two keys of an object are both called {name!r}")
    layout.kinds.setdefault(name, set()).add(kind)
    if len(layout.pointers) > _PATHS_MAX:
        raise BadBatch(f"{file} has more than {_PATHS_MAX:,} keys; some keys may be data")


def _objects(
    database: duckdb.DuckDBPyConnection,
    text: IO[bytes],
    name: str,
    bad: BadRows,
    inner: Sequence[str] = (),
) -> Iterator[NumberedRows]:
    """The rows that are objects, as a column of JSON text.

    inner: pointers of the objects within them; each object has each of its keys once.
    """
    once_each = " AND ".join(["true", *(_has_keys_once(pointer) for pointer in ["", *inner])])
    for rows in _lines(text, name):
        database.register("lines", pa.table(rows.batch.columns, names=["j"]))
        table = database.sql(
            "SELECT json_valid(j) AND coalesce(kind = 'OBJECT', false) AS fine, "  # noqa: S608
            f"CASE WHEN json_valid(j) THEN {once_each} ELSE true END AS once FROM "
            "(SELECT j, CASE WHEN json_valid(j) THEN json_type(j) END AS kind FROM lines)"
        ).to_arrow_table()
        database.unregister("lines")
        fine = np.asarray(_whole(table["fine"]))
        once = np.asarray(_whole(table["once"]))
        for at in np.flatnonzero(~(fine & once)):
            line = rows.batch.column(0)[int(at)].as_py()
            problem = " is not a JSON object" if not fine[at] else " has a key twice"
            bad.keep(int(rows.numbers[at]), f"{problem}: {shown(line)}", line)
        kept = pa.array(fine & once)
        yield NumberedRows(rows.numbers[fine & once], rows.batch.filter(kept))


def _has_keys_once(pointer: str) -> str:
    """SQL that is true for rows that have no object at a pointer, or one without repeated keys."""
    keys = f"json_keys(j, {_quoted(pointer)})" if pointer else "json_keys(j)"
    return f"coalesce(len({keys}) = len(list_distinct({keys})), true)"


def _inner(pointers: Iterable[str]) -> list[str]:
    """The pointers of all objects that the values at some pointers stand in, but of the row."""
    found: set[str] = set()
    for pointer in pointers:
        parent = pointer.rpartition("/")[0]
        while parent:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found)


def _lines(text: IO[bytes], name: str) -> Iterator[NumberedRows]:
    """The lines that are not blank, or the elements of an array."""
    number, rest = 1, b""
    while block := text.read(_BLOCK_BYTES):
        if number == 1 and not rest and block.lstrip().startswith(b"["):
            yield _elements(block.lstrip() + text.read(_ARRAY_BYTES_MAX), name)
            return
        rest += block
        end = rest.rfind(b"\n") + 1
        if end == 0 and len(rest) > _LINE_BYTES_MAX:
            raise BadBatch(f"{name}: line {number:,} is longer than {_LINE_BYTES_MAX:,} bytes")
        if end:
            rows = numbered(number, _split(rest[:end]))
            number += rows.batch.num_rows
            rest = rest[end:]
            yield _not_blank(rows)
    if rest.strip():
        yield _not_blank(numbered(number, _split(rest + b"\n")))


def _split(lines: bytes) -> pa.RecordBatch:
    """Whole lines as a column of text, without their ends."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    offsets = np.concatenate(([0], ends + 1)).astype(np.int32)
    text = pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets.tobytes()), pa.py_buffer(lines)
    )
    return pa.RecordBatch.from_arrays([text], names=["j"])


def _not_blank(rows: NumberedRows) -> NumberedRows:
    kept = pc.match_substring_regex(rows.batch.column(0), r"\S")
    return NumberedRows(rows.numbers[np.asarray(kept)], rows.batch.filter(kept))


def _elements(text: bytes, name: str) -> NumberedRows:
    """The elements of an array, as they are written: DuckDB would write numbers in another form."""
    if len(text) > _ARRAY_BYTES_MAX:
        raise BadBatch(
            f"{name} is a JSON array of more than {_ARRAY_BYTES_MAX >> 20} MiB: "
            "write one object to a line"
        )
    try:
        elements = _cut_elements(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadBatch(f"{name} is not a JSON array: {error}") from error
    return numbered(1, pa.RecordBatch.from_arrays([pa.array(elements, pa.string())], names=["j"]))


def _cut_elements(text: str) -> list[str]:
    """Cut an array, whose bracket is the first character, into the texts of its elements.

    Raises:
      ValueError: the text is not one array.
    """
    decode = json.JSONDecoder(parse_float=str, parse_int=str, strict=False).raw_decode
    elements: list[str] = []
    at = _after_blanks(text, 1)
    is_ended = text[at : at + 1] == "]"
    while not is_ended:
        _, end = decode(text, at)
        elements.append(text[at:end])
        at = _after_blanks(text, end)
        is_ended = text[at : at + 1] == "]"
        if not is_ended:
            if text[at : at + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' or ']'", text, at)
            at = _after_blanks(text, at + 1)
    if text[at + 1 :].strip():
        raise json.JSONDecodeError("Extra data", text, at + 1)
    return elements


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()
