"""SQL of the rows of a relation: files by their layout and deleted rows, and the tail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shedder.archive.exact.relation import ExactRelation
from shedder.archive.exact.worker import DELETED, TAIL, quoted_name, quoted_texts
from shedder.cql.sql.exact_query import POSITION

_POSITION_DIGITS = 20  # A run's file name begins with the position of its first row.
_FILE = "__file"  # The name that DuckDB gives it is one that streams have, too.
_OF_ORDER = (
    f"CAST(substr(parse_filename({_FILE}), 1, {_POSITION_DIGITS}) AS BIGINT) + file_row_number"
)


def relation_sql(relation: ExactRelation) -> str:
    """Return a SELECT of ordered and dealt files, each without deleted rows, and of the tail."""
    columns = ", ".join(quoted_name(name) for name in relation.schema.names)
    of_ordered = of_others = ""
    if relation.position is not None:
        of_ordered = f", {_OF_ORDER} AS {quoted_name(relation.position)}"
        of_others = f", {quoted_name(relation.position)}"
    parts = []
    marked = set(relation.without.files)
    for files, is_dealt in ((relation.files, False), (relation.dealt, True)):
        more = of_others if is_dealt else of_ordered
        for deleted in (False, True):
            some = [path for path in files if (path in marked) == deleted]
            if some:
                numbered = not is_dealt and (deleted or bool(more))
                source = _source(some, numbered=numbered)
                if deleted:
                    position = _OF_ORDER if numbered else POSITION
                    gone = f"SELECT {POSITION} FROM {quoted_name(DELETED + relation.name)}"  # noqa: S608
                    source = f"{source} WHERE {position} NOT IN ({gone})"
                parts.append(f"SELECT {columns}{more} FROM {source}")  # noqa: S608
    tail = quoted_name(TAIL + (relation.tail_of or relation.name))
    parts.append(f"SELECT {columns}{of_others} FROM {tail}")  # noqa: S608  (quoted)
    return " UNION ALL ".join(parts)


def absolute(paths: Sequence[Path]) -> list[str]:
    """Return the names by which the process reads files."""
    return [str(path.absolute()) for path in paths]


def _source(files: Sequence[Path], *, numbered: bool) -> str:
    """Return files; numbered: their names and order of rows tell the positions."""
    options = "hive_partitioning = false"
    if numbered:
        options += f", filename = '{_FILE}', file_row_number = true"
    return f"read_parquet([{quoted_texts(absolute(files))}], {options})"
