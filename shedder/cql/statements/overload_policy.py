"""ON OVERLOAD and what may follow it: what becomes of a stream that comes too fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from shedder.cql.expressions.column_types import ColumnType
from shedder.errors import BadQuery

POLICIES = "THIN, BLOCK, DROP, DROP LEAST column or DROP OLDEST"
_NUMBERS = (ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.DOUBLE)


class Policy(Enum):
    """What is given up when more comes than can be read.

    THIN: work; synopses read a part, and nothing is lost. BLOCK: time; producers wait. DROP: tuples
    at the door, by chance. DROP_LEAST: tuples at the door, those of the least value. DROP_OLDEST:
    the reading of whole batches that have waited too long; the archive keeps them.
    """

    THIN = "THIN"
    BLOCK = "BLOCK"
    DROP = "DROP"
    DROP_LEAST = "DROP LEAST"
    DROP_OLDEST = "DROP OLDEST"


@dataclass(frozen=True, slots=True)
class OnOverload:
    """A stream's policy. column: whose values DROP LEAST goes by; else None."""

    policy: Policy = Policy.THIN
    column: str | None = None

    @property
    def drops_at_the_door(self) -> bool:
        """Return whether tuples may be dropped before they reach the log."""
        return self.policy in (Policy.DROP, Policy.DROP_LEAST)


THINS = OnOverload()


def resolved(clause: OnOverload, columns: Mapping[str, ColumnType]) -> OnOverload:
    """The policy with its column as the stream writes it.

    Args:
      clause: as it was written.
      columns: of the stream, by name.

    Raises:
      BadQuery: there is no such column, or it is none of numbers.
    """
    if clause.column is None:
        return clause
    for name, column_type in columns.items():
        if name.lower() == clause.column.lower():
            if column_type not in _NUMBERS:
                raise BadQuery(
                    f"DROP LEAST {name}: it is {column_type.value}; a value is a number "
                    "(INTEGER, BIGINT or DOUBLE)"
                )
            return OnOverload(clause.policy, name)
    raise BadQuery(f"DROP LEAST {clause.column}: no such column; there are {', '.join(columns)}")
