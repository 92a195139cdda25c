"""Small archives and hand-made answers, for tests of the judge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from shedder.archive.archive_store import Store
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.statements.archive_layout import Hybrid
from shedder.cql.statements.bound_query import StreamSchema
from shedder.cql.statements.statement import ColumnDefinition
from shedder.queries.answers.answer import COMPANION, ESTIMATE, ROLE, Answer
from spark_ingest.baseline import SealedStream, sealed_stream

_TYPES = {kind.arrow: kind for kind in ColumnType}


def stream_schema(name: str, schema: pa.Schema, time_column: str = "ts") -> StreamSchema:
    columns = tuple(ColumnDefinition(f.name, _TYPES[f.type], f.nullable) for f in schema)
    return StreamSchema(name, columns, time_column, 0, None, Hybrid(3, 2), seed=11)


def archive(directory: Path, name: str, parts: Sequence[pa.RecordBatch]) -> SealedStream:
    """A data directory whose stream has one run per part."""
    store = Store.open(directory)
    entry = store.create_stream(stream_schema(name, parts[0].schema))
    position = 0
    for sequence, part in enumerate(parts):
        store.add(entry.id, position, part, sequence=sequence)
        store.cut(entry.id)
        position += part.num_rows
    store.close()
    return sealed_stream(directory, name)


def answer(
    keys: Mapping[str, Sequence[Any]],
    estimates: Mapping[str, Sequence[tuple[Any, Any, Any, str]]],
    **facts: Any,
) -> Answer:
    """An answer with key columns and, per output, (value, low, high, bound) of each group."""
    columns: dict[str, pa.Array] = {name: pa.array(values) for name, values in keys.items()}
    fields = [pa.field(name, array.type) for name, array in columns.items()]
    for name, cells in estimates.items():
        listed = any(isinstance(cell[0], list) for cell in cells)
        parts = {"": [c[0] for c in cells], "_bound": [c[3] for c in cells]}
        if not listed:
            parts |= {"_low": [c[1] for c in cells], "_high": [c[2] for c in cells]}
        arrays = {name + part: pa.array(values) for part, values in parts.items()}
        arrays[name + "_met"] = pa.nulls(len(cells), pa.bool_())
        for column, array in arrays.items():
            role = ESTIMATE if column == name else COMPANION
            fields.append(pa.field(column, array.type, metadata={ROLE: role}))
            columns[column] = array
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    given = {"confidence": 0.95, "sources": ("sample",), **facts}
    return Answer(table, **given)
