"""FOREIGN KEY of a stream: each of its tuples comes at most k tuples before its partner.

The constraint is referential integrity of a many-one join, RI(k).
Source: Babu, Srivastava, Widom 2004, Exploiting k-constraints to reduce memory overhead in
continuous queries over data streams, ACM TODS 29(3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadQuery

WITHIN_MAX = 1_000_000_000  # Tuples; longer waits are those of the window.


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """FOREIGN KEY (columns) REFERENCES relation (referenced) WITHIN k TUPLES.

    columns: of the stream that has the clause. relation: the other stream, whose tuples differ in
    the columns `referenced`.
    within: k >= 0: a tuple without a partner has it among the next k tuples of the other stream.
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
      BadQuery: a column is missing or named twice, the numbers of columns differ, or k is too
        large.
    """
    if len(key.columns) != len(key.referenced):
        raise BadQuery(
            f"FOREIGN KEY names {len(key.columns)} columns and REFERENCES {len(key.referenced)}; "
            "each column has one partner"
        )
    if key.within > WITHIN_MAX:
        raise BadQuery(
            f"FOREIGN KEY … WITHIN {key.within} TUPLES: at most {WITHIN_MAX:,}; without the clause "
            "a join holds the tuples of its windows"
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
