r"""Control characters of values as visible escapes, for text that a terminal shows.

Values, names and messages may hold bytes that a producer chose. A terminal runs escape sequences
(CWE-150) and reorders text after bidirectional marks. So such characters are written as escapes,
for example \x1b and \u202e.
"""

from __future__ import annotations

_LINE = "\n\t"
_BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SEPARATORS = [0x2028, 0x2029]
_SURROGATES = range(0xD800, 0xE000)  # No encoding of a terminal has them.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL, *_SEPARATORS]
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in [*_CONTROLS, *_SURROGATES]}
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in _LINE}


def escaped(text: str) -> str:
    """One line of text: control characters, line ends included, as escapes."""
    return text.translate(_ESCAPES)


def escaped_lines(text: str) -> str:
    """Text of several lines: control characters as escapes, except line ends and tabs."""
    return text.translate(_ESCAPES_IN_LINES)
