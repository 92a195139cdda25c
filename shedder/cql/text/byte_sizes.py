"""Amounts of memory, as a text says them."""

from __future__ import annotations

SIZES = {"BYTES": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
"""The bytes of every unit that can be said."""


def size_text(size_bytes: int) -> str:
    """The amount in the largest unit of which it is a whole number: 64 KIB."""
    unit = next(name for name in reversed(SIZES) if size_bytes % SIZES[name] == 0)
    return f"{size_bytes // SIZES[unit]} {unit}"
