"""Estimates of groups of which each is asked at a part of delta of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from synopses.model.estimate import Estimates

Rows = NDArray[np.int64]


class ShownGroups(Protocol):
    """Groups that are shown because a row of them was read."""

    def shown_delta(self, confidence: float) -> NDArray[np.float64] | None:
        """The part of delta of each group; None: all groups have all of it."""

    def only(self, groups: Rows) -> Self:
        """The same of some groups, in this order."""


Source = TypeVar("Source", bound=ShownGroups)


@dataclass(slots=True, eq=False)
class GroupsByPart(Generic[Source]):
    """The groups of a source by their part of delta; kept, so that its aggregates share them.

    deltas: the part of each group, by confidence. sources: of the groups of one part, by these.
    """

    deltas: dict[float, NDArray[np.float64] | None] = field(default_factory=dict)
    sources: dict[bytes, Source] = field(default_factory=dict)

    def ask(
        self,
        source: Source,
        confidence: float,
        ask: Callable[[Source, float], Estimates],
        allowing: NDArray[np.bool_] | None = None,
    ) -> Estimates:
        """Ask each group at its part of delta.

        source: always the same one. allowing: [groups], all others have all of delta; None: none.
        """
        if confidence not in self.deltas:
            self.deltas[confidence] = source.shown_delta(confidence)
        parts = self.deltas[confidence]
        if parts is None:
            return ask(source, confidence)
        if allowing is not None:
            parts = np.where(allowing, parts, 1.0)
        return at_parts(parts, confidence, lambda groups, at: ask(self._of(source, groups), at))

    def _of(self, source: Source, groups: Rows | None) -> Source:
        if groups is None:
            return source
        key = groups.tobytes()
        if key not in self.sources:
            self.sources[key] = source.only(groups)
        return self.sources[key]


def at_parts(
    parts: NDArray[np.float64],
    confidence: float,
    ask: Callable[[Rows | None, float], Estimates],
) -> Estimates:
    """Ask each group at its part of delta; all intervals claim the whole of it.

    Args:
      parts: float64 [groups], in (0, 1], few different ones (`shown_delta`).
      confidence: that the intervals claim.
      ask: (groups, confidence) -> one estimate for each of these groups, in this order. None: all.
    """
    classes = np.unique(parts)
    if len(classes) <= 1:
        at = 1.0 - (1.0 - confidence) * (float(classes[0]) if len(classes) else 1.0)
        return _claiming(ask(None, at), confidence)
    rows = [np.flatnonzero(parts == part) for part in classes]
    columns = [
        ask(some, 1.0 - (1.0 - confidence) * float(part))
        for some, part in zip(rows, classes, strict=True)
    ]
    order = np.argsort(np.concatenate(rows))
    return _claiming(_joined(columns).take(order), confidence)


def _claiming(found: Estimates, confidence: float) -> Estimates:
    return replace(found, confidence=1.0 if found.confidence == 1.0 else confidence)


def _joined(columns: Sequence[Estimates]) -> Estimates:
    """The groups of all columns, one column after the other."""
    return Estimates(
        np.concatenate([each.value for each in columns]),
        np.concatenate([each.low for each in columns]),
        np.concatenate([each.high for each in columns]),
        np.concatenate([each.bound for each in columns]),
        np.concatenate([each.null for each in columns]),
        min(each.confidence for each in columns),
        max(columns, key=len).source,
        next((each.reason for each in columns if each.reason), ""),
    )
