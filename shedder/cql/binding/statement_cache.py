"""Cache of parsed statements, by text and parameters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal

from shedder.cql.binding.parse import DEFAULT_LIMITS, parse, parse_thinning
from shedder.cql.expressions.literals import Parameters
from shedder.cql.statements.statement import AlterQuery, Statement
from shedder.cql.text.size_limits import Limits

_Key = tuple[str, str]

# Types whose repr tells two values apart that are bound to different constants.
_KEY_TYPES = (bool, int, float, str, date, datetime, Decimal, type(None))


class StatementCache:
    """Parses each text once; the least recently used texts are forgotten first. Thread-safe.

    A statement is immutable, so calls share it. Texts that are no statement are not kept.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, characters_max: int = 1 << 17) -> None:
        """Begin empty.

        Args:
          limits: what one text may cost.
          characters_max: of all texts and parameters that are kept. A statement takes some
            hundred bytes per word, so the default keeps at most about 10 MiB.
        """
        self._limits = limits
        self._characters_max = characters_max
        self._characters = 0
        self._kept: OrderedDict[_Key, Statement] = OrderedDict()
        self._lock = threading.Lock()

    def parse(self, text: str, params: Parameters | None = None) -> Statement:
        """Return the one statement of a text.

        Raises:
          BadQuery, Unimplemented: as `parse`.
        """
        key = _key(text, params)
        if key is None:
            return parse(text, params, self._limits)
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        statement = parse(text, params, self._limits)
        with self._lock:
            if key not in self._kept:
                self._characters += _size(key)
            self._kept[key] = statement
            while self._characters > self._characters_max:
                oldest, _ = self._kept.popitem(last=False)
                self._characters -= _size(oldest)
        return statement

    def parse_thinning(self, query: str, text: str) -> AlterQuery:
        """Return the statement ALTER QUERY query SET THINNING text; it is not kept.

        Raises:
          BadQuery, Unimplemented: as `parse_thinning`.
        """
        return parse_thinning(query, text, self._limits)

    def __len__(self) -> int:
        """Return the number of entries."""
        with self._lock:
            return len(self._kept)


def _key(text: str, params: Parameters | None) -> _Key | None:
    """The text with its parameters; None: a parameter's repr may not tell all of its value."""
    values = list(params.values() if isinstance(params, Mapping) else params or ())
    if not all(type(value) in _KEY_TYPES for value in values):
        return None
    names = sorted(params) if isinstance(params, Mapping) else None
    ordered = [params[name] for name in names] if isinstance(params, Mapping) and names else values
    return text, repr((names, ordered))


def _size(key: _Key) -> int:
    return sum(map(len, key))
