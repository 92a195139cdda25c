"""Archive layouts as a statement names them: how a stream's runs lie on disk."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shedder.errors import BadQuery

BLOCKS = 64
BLOCKS_MAX = 1024
BLOCK_ROWS = 32_768
SMALL_ROWS = 256  # The smallest part of a divided block has so many, up to twice as many.
"""Fewer rows are read about as slowly as these, so smaller blocks save nothing (OSCAR, §6.3)."""

REDUCTIONS = (0.2, 0.4, 0.6, 0.8)
REDUCTIONS_MAX = 16


@dataclass(frozen=True, slots=True)
class Plain:
    """One copy in order of position; every scan reads all of it."""


@dataclass(frozen=True, slots=True)
class Eager:
    """OnWriteReplicate: a pristine copy, and a sampled one for each reduction, written on arrival.

    reductions: the share that each copy leaves out, in [0, 1), strictly increasing.
    """

    reductions: tuple[float, ...] = REDUCTIONS

    def __post_init__(self) -> None:
        """Refuse reductions that no copies can have.

        Raises:
          BadQuery: which one is wrong.
        """
        if not 1 <= len(self.reductions) <= REDUCTIONS_MAX:
            raise BadQuery(
                f"eager takes 1 to {REDUCTIONS_MAX} reductions, not {len(self.reductions)}"
            )
        for reduction in self.reductions:
            if not 0 <= reduction < 1:  # NaN is not, either
                raise BadQuery(f"a reduction is in [0, 1), not {reduction!r}: eager(0.2, 0.8)")
        for low, high in zip(self.reductions, self.reductions[1:], strict=False):
            if low >= high:
                raise BadQuery(f"reductions increase; {high!r} stands after {low!r}")


@dataclass(frozen=True, slots=True)
class Lazy:
    """OnReadModify: queries mark what they drop; a vacuum builds the copy that is left."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """RandomizeThenSort: a run's tuples are dealt at random into blocks, each sorted by time.

    blocks: how many, at most. block_rows: a block has at least so many rows; a run that is too
    small for all of the blocks has fewer, at least one.
    """

    blocks: int = BLOCKS
    block_rows: int = BLOCK_ROWS

    def __post_init__(self) -> None:
        """Refuse what cannot be dealt.

        Raises:
          BadQuery: which number is wrong.
        """
        if not 1 <= self.blocks <= BLOCKS_MAX:
            raise BadQuery(f"hybrid takes 1 to {BLOCKS_MAX:,} blocks, not {self.blocks:,}")
        if self.block_rows < 1:
            raise BadQuery(f"a block has at least 1 row, not {self.block_rows:,}")

    def blocks_of(self, rows: int) -> int:
        """Return how many blocks a run of so many rows has, at least 1."""
        return max(1, min(self.blocks, rows // self.block_rows))

    def halvings_of(self, rows: int) -> int:
        """Into how many halves, quarters ... the last block of a run of so many rows is divided.

        So that a little of each of many runs can be read. Not the only block: a run that is too
        small for two is read as a whole.
        """
        blocks = self.blocks_of(rows)
        return 0 if blocks == 1 else max(0, (rows // blocks // SMALL_ROWS).bit_length() - 1)


Layout = Plain | Eager | Lazy | Hybrid
DEFAULT_LAYOUT = Hybrid()
LAYOUTS = "plain, eager(0.2, 0.4, 0.6, 0.8), lazy, hybrid(blocks=64)"

Argument = tuple[str | None, float]
"""An argument's name, if it has one, and its value."""


def layout_of(name: str, arguments: tuple[Argument, ...] = ()) -> Layout:
    """The layout that a name and its arguments mean.

    Raises:
      BadQuery: there is no such layout, or it takes no such argument.
    """
    match name.lower():
        case "plain" if not arguments:
            return Plain()
        case "lazy" if not arguments:
            return Lazy()
        case "plain" | "lazy":
            raise BadQuery(f"{name.lower()} takes no arguments")
        case "eager":
            return _eager(arguments)
        case "hybrid":
            return _hybrid(arguments)
        case _:
            raise BadQuery(f"no archive layout {name!r}; there are {LAYOUTS}")


def _eager(arguments: tuple[Argument, ...]) -> Eager:
    for key, _ in arguments:
        if key is not None:
            raise BadQuery(f"eager takes reductions, not {key!r}: eager(0.2, 0.4)")
    return Eager(tuple(value for _, value in arguments)) if arguments else Eager()


def _hybrid(arguments: tuple[Argument, ...]) -> Hybrid:
    said: dict[str, int] = {}
    for key, value in arguments:
        if key not in ("blocks", "block_rows") or key in said:
            raise BadQuery(f"hybrid takes blocks= and block_rows=, each once, not {key!r}")
        if not float(value).is_integer():  # NaN and infinity are not, either
            raise BadQuery(f"{key} takes a whole number, not {value!r}")
        said[key] = int(value)
    return Hybrid(**said)


def layout_text(layout: Layout) -> str:
    """The words of CQL for a layout; `layout_from_text` reads them back."""
    match layout:
        case Plain():
            return "plain"
        case Lazy():
            return "lazy"
        case Eager(reductions):
            return f"eager({', '.join(map(repr, reductions))})"
        case Hybrid(blocks, block_rows):
            rows = "" if block_rows == BLOCK_ROWS else f", block_rows={block_rows}"
            return f"hybrid(blocks={blocks}{rows})"


def layout_from_text(text: str) -> Layout:
    """Read what `layout_text` wrote.

    Raises:
      BadQuery: it is nothing of the kind.
    """
    match = re.fullmatch(r"([a-z]+)(?:\((.*)\))?", text)
    if match is None:
        raise BadQuery(f"no archive layout {text!r}; there are {LAYOUTS}")
    arguments: list[Argument] = []
    for part in filter(None, (match[2] or "").split(", ")):
        key, equals, value = part.rpartition("=")
        try:
            arguments.append((key if equals else None, float(value)))
        except ValueError:
            raise BadQuery(f"no archive layout {text!r}: {value!r} is no number") from None
    return layout_of(match[1], tuple(arguments))
