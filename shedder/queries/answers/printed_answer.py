"""Protocols of a printed answer: the parts of an answer that its text shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import pyarrow as pa


class GroupsBound(Protocol):
    """A bound on groups that are not in an answer."""

    @property
    def weight_max(self) -> float | None:
        """Tuples that no missing group has; None: nothing can be said."""

    @property
    def confidence(self) -> float:
        """Probability that the bound holds."""

    @property
    def reason(self) -> str:
        """Return why nothing can be said."""


class ArchivePart(Protocol):
    """How much of the archive an answer asked for and read."""

    @property
    def reduction(self) -> str:
        """Name and arguments of the reduction."""

    @property
    def asked_min(self) -> float:
        """Smallest reduction asked of a run."""

    @property
    def asked_max(self) -> float:
        """Largest reduction asked of a run."""

    @property
    def given_min(self) -> float:
        """Smallest share left out of a run."""

    @property
    def given_max(self) -> float:
        """Largest share left out of a run."""

    @property
    def blocks(self) -> int:
        """Blocks in the window."""

    @property
    def blocks_read(self) -> int:
        """Blocks that were read."""

    @property
    def bytes_stored(self) -> int:
        """Bytes of the files."""

    @property
    def bytes_read(self) -> int:
        """Bytes that were read."""

    @property
    def looks(self) -> int:
        """Return how often the answer was looked at."""


class RowsText(Protocol):
    """How many rows an answer has of those that there are."""

    @property
    def text(self) -> str:
        """What it says, on one line."""


class PrintedAnswer(Protocol):
    """An answer, as its text shows it."""

    @property
    def table(self) -> pa.Table:
        """Outputs, with the interval and bound of each approximate one."""

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs, in order."""

    @property
    def approximate(self) -> Collection[str]:
        """Names of the outputs that have intervals."""

    @property
    def others(self) -> int | None:
        """The row of all groups that found no room."""

    @property
    def start_us(self) -> int | None:
        """Begin of the window; None: it is open."""

    @property
    def end_us(self) -> int | None:
        """End of the window; None: it is open."""

    @property
    def complete(self) -> bool:
        """Return whether the watermark has passed the end of the window."""

    @property
    def resolution_us(self) -> int:
        """The window was asked to begin less than this later."""

    @property
    def watermark_us(self) -> int | None:
        """The watermark of the stream; None before the first tuple."""

    @property
    def position(self) -> int:
        """The position that the answer includes tuples up to."""

    @property
    def sources(self) -> tuple[str, ...]:
        """What was read."""

    @property
    def confidence(self) -> float:
        """Confidence of each interval."""

    @property
    def thinning(self) -> float:
        """The smallest share of tuples that a source read."""

    @property
    def archive_share_read(self) -> float:
        """Share of the archive's tuples that were read."""

    @property
    def archive(self) -> ArchivePart | None:
        """Return how the archive was read in part."""

    @property
    def late(self) -> int:
        """Tuples that came too late for their pane."""

    @property
    def missing(self) -> GroupsBound | None:
        """The bound on groups that are not in the answer."""

    @property
    def certified(self) -> bool | None:
        """What audits say; None: there were none."""

    @property
    def elapsed_ms(self) -> float:
        """Time that the answer took."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats."""

    @property
    def cut(self) -> str:
        """The limit that left out rows at the end; empty: none did."""

    @property
    def completeness(self) -> RowsText | None:
        """Return what its rows say of all; None: no key is left out."""
