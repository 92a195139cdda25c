"""FOREIGN KEY of a stream: each of its tuples comes after its partner in another stream.

The constraint is referential integrity of a many-one join, RI(k), with k = 0.
Source: Babu, Srivastava, Widom 2004, Exploiting k-constraints to reduce memory overhead in
continuous queries over data streams, ACM TODS 29(3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadQuery, Unimplemented


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """FOREIGN KEY (columns) REFERENCES relation (referenced) WITHIN 0 TUPLES.

    columns: of the stream that has the clause. relation: the other stream, whose tuples differ in
    the columns `referenced`.
    within: k: how many tuples of the other stream may come between a tuple and its partner.
    """

    columns: tuple[str, ...]
    relation: str
    referenced: tuple[str, ...]
    within: int = 0


def resolved_key(key: ForeignKey, columns: Mapping[str, ColumnType]) -> ForeignKey:
    """Return a foreign key with its columns as the stream writes them.

    Args:
      key: as it was written.
      columns: of the stream, by name.

    Raises:
      BadQuery: a column is missing or named twice, or the numbers of columns differ.
      Unimplemented: k is not 0.
    """
    if len(key.columns) != len(key.referenced):
        raise BadQuery(
            f"FOREIGN KEY names {len(key.columns)} columns and REFERENCES {len(key.referenced)}; "
            "each column has one partner"
        )
    if key.within:
        raise Unimplemented(
            f"FOREIGN KEY … WITHIN {key.within} TUPLES: not in this version, which has WITHIN 0 "
            "TUPLES: the partner has come before"
        )
    found = _named(key.columns, columns, "FOREIGN KEY")
    return replace(key, columns=found)


def referenced_key(
    key: ForeignKey, own: Mapping[str, ColumnType], others: Mapping[str, ColumnType]
) -> ForeignKey:
    """Return a resolved foreign key with the other stream's columns as that stream writes them.

    Args:
      key: of `resolved_key`.
      own, others: columns of the stream and of the other one, by name.

    Raises:
      BadQuery: the other stream lacks a column, or the types of two partners differ.
    """
    found = _named(key.referenced, others, f"REFERENCES {key.relation}")
    for name, other in zip(key.columns, found, strict=True):
        if own[name] is not others[other]:
            raise BadQuery(
                f"FOREIGN KEY {name} is {own[name].value}, and {key.relation}.{other} is "
                f"{others[other].value}; both need one type"
            )
    return replace(key, referenced=found)


def _named(
    names: tuple[str, ...], columns: Mapping[str, ColumnType], clause: str
) -> tuple[str, ...]:
    by_name = {name.lower(): name for name in columns}
    found = list[str]()
    for name in names:
        if name.lower() not in by_name:
            raise BadQuery(f"{clause} ({name}): no such column; there are {', '.join(columns)}")
        if by_name[name.lower()] in found:
            raise BadQuery(f"{clause} names the column {name!r} twice; write it once")
        found.append(by_name[name.lower()])
    return tuple(found)
