"""Regular expressions of REGEXP_EXTRACT: a subset that RE2 and Java match alike.

The subset has one character set per escape, no flags, and no repeat of what may be empty. A pattern
is written anew with explicit sets, because `.`, `$`, `\\s` and `\\w` differ between RE2 (Arrow,
DuckDB) and Java (Spark). One group is captured; the others only group.

Source: github.com/google/re2/wiki/Syntax; java.util.regex.Pattern of Java 17.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shedder.errors import BadQuery

NESTING_MAX = 32  # Levels of brackets, as in an expression.
PATTERNS_KEPT = 64  # Each batch of a stream asks for the patterns of its queries.
REPEATS_MAX = 1000  # RE2's limit of a count in braces.

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}
_SETS = {"d": "0-9", "w": "0-9A-Z_a-z", "s": "\\t\\n\\f\\r "}  # RE2's; Java's \s has one more.
_SPECIAL = frozenset("\\.^$|?*+()[]{}-&")


@functools.lru_cache(maxsize=PATTERNS_KEPT)
def group_pattern(pattern: str, group: int, opening: str = "(") -> str:
    """Return a pattern for both engines that captures one group alone.

    Args:
      pattern: as written in the query.
      group: 1 is the first bracket that captures; 0: the whole match.
      opening: of the captured group.

    Raises:
      BadQuery: the pattern is not of the subset, or has no such group.
    """
    reader = _PatternReader(pattern, group, opening)
    found = reader.alternatives(0)
    if reader.at < len(pattern):
        raise reader.wrong("a bracket is closed that is not open; write \\)")
    if group > reader.groups:
        raise BadQuery(f"the pattern {pattern!r} has {reader.groups} groups, and no group {group}")
    text = f"{opening}{found.text})" if group == 0 else found.text
    try:
        pc.match_substring_regex(pa.array([""]), pattern=text)
    except pa.ArrowInvalid as error:  # Counts in counts need too many states.
        raise BadQuery(f"the pattern {pattern!r} is too large: {error}") from error
    return text


@dataclass(frozen=True, slots=True)
class _PatternPart:
    """Text of a part for both engines. may_be_empty: it matches the empty text."""

    text: str
    may_be_empty: bool


@dataclass(slots=True)
class _PatternReader:
    """Reads a pattern from left to right. at: place of the next character. groups: so far."""

    pattern: str
    captured: int
    opening: str
    at: int = 0
    groups: int = 0

    def wrong(self, why: str) -> BadQuery:
        return BadQuery(f"in the pattern {self.pattern!r}, at character {self.at + 1}: {why}")

    def _next(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def alternatives(self, depth: int) -> _PatternPart:
        """Read up to a closing bracket, or to the end."""
        if depth > NESTING_MAX:
            raise self.wrong(f"brackets nest at most {NESTING_MAX} deep")
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        return _PatternPart("|".join(it.text for it in parts), any(it.may_be_empty for it in parts))

    def _sequence(self, depth: int) -> _PatternPart:
        texts, may_be_empty = list[str](), True
        while self._next() not in ("", "|", ")"):
            part = self._repeated(self._atom(depth))
            texts.append(part.text)
            may_be_empty = may_be_empty and part.may_be_empty
        return _PatternPart("".join(texts), may_be_empty)

    def _atom(self, depth: int) -> _PatternPart:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return _PatternPart(self._set(), False)
        if character in "*+?{":
            raise self.wrong(f"{character} repeats nothing here; write \\{character} for itself")
        self.at += 1
        match character:
            case ".":
                return _PatternPart("[^\\n]", False)
            case "^":
                return _PatternPart("\\A", True)
            case "$":
                return _PatternPart("\\z", True)
            case "\\":
                return _PatternPart(self._escaped(in_set=False), False)
        return _PatternPart(_itself(character), False)

    def _group(self, depth: int) -> _PatternPart:
        opening = "(?:"
        if not self._take("(?:"):
            if self.pattern.startswith("(?", self.at):
                raise self.wrong("of the brackets with (? there is (?: ) alone")
            self.at += 1
            self.groups += 1
            if self.groups == self.captured:
                opening = self.opening
        inner = self.alternatives(depth + 1)
        if not self._take(")"):
            raise self.wrong("a bracket is not closed")
        return _PatternPart(f"{opening}{inner.text})", inner.may_be_empty)

    def _repeated(self, part: _PatternPart) -> _PatternPart:
        begin = self.at
        least = self._counts()
        if least is None:
            return part
        if part.may_be_empty:
            self.at = begin
            raise self.wrong("what is repeated may be empty; engines differ there")
        self._take("?")
        return _PatternPart(part.text + self.pattern[begin : self.at], least == 0)

    def _counts(self) -> int | None:
        """Read a quantifier, and return the least number of repeats; None: there is none."""
        for quantifier, least in (("*", 0), ("+", 1), ("?", 0)):
            if self._take(quantifier):
                return least
        if not self._take("{"):
            return None
        text, closed, _ = self.pattern[self.at :].partition("}")
        first, comma, last = text.partition(",")
        counts = [first, last] if comma and last else [first]
        if not closed or not all(each.isascii() and each.isdigit() for each in counts):
            raise self.wrong("braces hold counts: {3}, {3,} or {3,5}; write \\{ for a brace")
        numbers = [int(each[:6]) for each in counts]
        if numbers[0] > numbers[-1] or numbers[-1] > REPEATS_MAX:
            raise self.wrong(f"counts rise, to at most {REPEATS_MAX}")
        self.at += len(text) + 1
        return numbers[0]

    def _set(self) -> str:
        self.at += 1
        parts = ["[^" if self._take("^") else "["]
        if self._next() == "]":
            raise self.wrong("a set has a character; write \\] for a bracket")
        while not self._take("]"):
            if self._next() == "":
                raise self.wrong("a set is not closed")
            parts.append(self._range())
        return "".join(parts) + "]"

    def _range(self) -> str:
        begin = self.at
        first = self._character()
        follows = self.pattern[self.at : self.at + 2]
        if len(follows) < 2 or follows[0] != "-" or follows[1] == "]":
            return first
        self.at += 1
        last = self._character()
        low, high = (each.removeprefix("\\") for each in (first, last))
        if len(low) != 1 or len(high) != 1 or low > high:
            self.at = begin
            raise self.wrong("a range goes from a character to one that is not before it")
        return f"{first}-{last}"

    def _character(self) -> str:
        character = self._next()
        self.at += 1
        return self._escaped(in_set=True) if character == "\\" else _itself(character)

    def _escaped(self, *, in_set: bool) -> str:
        """Read what is behind a backslash."""
        character = self._next()
        if character in _SETS:
            self.at += 1
            return _SETS[character] if in_set else f"[{_SETS[character]}]"
        if not in_set and character.lower() in _SETS:
            self.at += 1
            return f"[^{_SETS[character.lower()]}]"
        if character in _CONTROLS:
            self.at += 1
            return _CONTROLS[character]
        if character and character.isascii() and not character.isalnum():
            self.at += 1
            return _itself(character)
        raise self.wrong(
            "a backslash stands before a mark, or in \\d \\w \\s \\D \\W \\S \\t \\n \\r"
        )


def _itself(character: str) -> str:
    return f"\\{character}" if character in _SPECIAL else character
