"""Completeness of rows: how many of them an answer has, and how many there are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from synopses.model.estimate import Bound, Estimate


@dataclass(frozen=True, slots=True)
class Completeness:
    """Rows of a query that keeps a sample of keys, beside those of the exact query.

    The rows of a key are all there, or none of them is. Each bound is 'exact', 'interval' or
    'none'.

    columns: of the rows, whose values together are a row's key.
    share: of all keys, that the sample has in the whole stretch.
    start_us, end_us: the stretch: event times of the first and of the last row of a stream; both
      None: the rows are those of the relation at the answer's watermark.
    shown_rows: of the answer. shown_keys: theirs, of the sample with this share.
    rows, keys: that the exact query has in place of these, from the tuples that came in time.
    reason: why `rows` has no bound; "": it has one.
    """

    columns: tuple[str, ...]
    share: float
    start_us: int | None
    end_us: int | None
    shown_rows: int
    shown_keys: int
    rows: Estimate
    keys: Estimate
    reason: str = ""

    @property
    def text(self) -> str:
        """What it says, on one line."""
        rows = _text(self.rows, "rows") + (f" ({self.reason})" if self.reason else "")
        return (
            f"{self.shown_rows:,} of {rows}; {self.shown_keys:,} of {_text(self.keys, 'keys')} "
            f"({', '.join(self.columns)}), of which {self.share:g} are kept"
        )

    def facts(self) -> dict[str, Any]:
        """Return everything in plain JSON types; ends of a bound 'none' are None."""
        return {**asdict(self), "rows": _facts(self.rows), "keys": _facts(self.keys)}


def _facts(estimate: Estimate) -> dict[str, Any]:
    facts = {**asdict(estimate), "bound": estimate.bound.word}
    return facts | ({"low": None, "high": None} if estimate.bound is Bound.NONE else {})


def _text(estimate: Estimate, unit: str) -> str:
    if estimate.bound is Bound.EXACT:
        return f"{estimate.value:,.0f} {unit}"
    about = f"an estimated {estimate.value:,.0f} {unit}"
    if estimate.bound is Bound.NONE:
        return f"{about} without bound"
    return f"{about}, {estimate.low:,.0f} to {estimate.high:,.0f}"
