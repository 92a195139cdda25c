"""Arguments of REDUCE BY, checked: every mistake is a ValueError that says what would be right."""

from __future__ import annotations

from shedder.cql.text.durations import interval_us


def number(name: str, value: float | str) -> float:
    """A number of any size."""
    if isinstance(value, str):
        raise ValueError(f"{name} takes a number, not {value!r}")
    return value


def share(name: str, value: float | str) -> float:
    """A number in [0, 1)."""
    if not 0.0 <= number(name, value) < 1.0:
        raise ValueError(f"{name} takes 0 or more and less than 1, not {value:g}")
    return number(name, value)


def text(name: str, value: float | str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} takes a text in quotes, not {value:g}")
    return value


def duration_us(name: str, value: float | str) -> int:
    """A duration such as '6 hours', in microseconds; more than 0."""
    us = interval_us(text(name, value), None)
    if us <= 0:
        raise ValueError(f"{name} takes a duration of more than 0, not {value!r}")
    return us
