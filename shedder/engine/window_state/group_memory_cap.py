"""Byte caps of a query: on the memory of its groups, and on its histograms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import TargetKind
from shedder.engine.panes.pane import Pane
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisPlan
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.model.errors import BadParameter

_WIDEST = 3  # Bits of the mantissa: a quantile is within 6 % at worst.
_WORTH = 0.75  # Of the bytes: groups of few values have as many buckets when these are wider.
_AGAIN = 1.25  # Times the bytes at which it was not worth it.
ALONE_BYTES_MAX = 512 << 10
"""What a pane's histogram without groups may hold: hundreds of decades, at the usual width."""
TEXTS_BYTES_MAX = 8 << 20
"""What the texts of an aggregate without groups may hold in all panes: a thousand of 8 KiB."""
GROWTH_MAX = 2  # Times the cap that groups with room may grow to, as docs/operations.md says.
HOLD_TEXTS = (
    SynopsisKind.EXTREMES,
    SynopsisKind.TEXT_FIRST_LAST,
    SynopsisKind.FREQUENT,
)  # They have `hold_texts`.
# What a group takes in a pane before it has more than one value: its places in the arrays, and
# one entry of the maps (measured over 10,000 groups of one value).
GROUP_BYTES_LEAST = {
    SynopsisKind.COUNT: 8,
    SynopsisKind.MOMENTS: 80,
    SynopsisKind.CROSS: 72,
    SynopsisKind.FIRST_LAST: 48,
    SynopsisKind.TEXT_FIRST_LAST: 200,
    SynopsisKind.EXTREMES: 160,
    SynopsisKind.DISTINCT: 30,
    SynopsisKind.THETA: 79,
    SynopsisKind.BUCKETS: 52,
    SynopsisKind.KLL: 256,  # A sketch that has left its buffer.
    SynopsisKind.REQ_HIGH: 786,
    SynopsisKind.REQ_LOW: 786,
    SynopsisKind.FREQUENT: 540,
    SynopsisKind.COUNTERS: 156,
}
GROUPS_MAX = 1 << 20  # Ids are int32, and an answer of a million rows is no answer.


def groups_max(plan: SynopsisPlan, panes: int, part_bytes_max: int) -> int:
    """Return how many groups can find room at all, when each takes the least in every pane."""
    least = max(GROUP_BYTES_LEAST[part.kind] for part in plan.parts)
    return max(1, min(GROUPS_MAX, part_bytes_max // (least * panes)))


@dataclass(slots=True)
class BucketWidths:
    """Bits of the mantissa that the histograms of each part have now, and the fewest they may have.

    Buckets are only ever collapsed, all of a part at once: counts stay exact and intervals certain,
    twice as wide for each bit. Panes carry their bits in their bytes, so a recovered query has the
    same widths.
    """

    fewest: Mapping[int, int]
    bits: dict[int, int] = field(init=False)
    _tried: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = dict.fromkeys(self.fewest, GroupedLogBuckets.profile.default)

    @classmethod
    def of(cls, query: BoundQuery, plan: SynopsisPlan) -> Self:
        """Those of a new query."""
        parts = [at for at, part in enumerate(plan.parts) if part.kind is SynopsisKind.BUCKETS]
        return cls(dict.fromkeys(parts, _fewest_bits(query)))

    def to_hold(
        self, shares: Mapping[int, float], panes: Collection[Pane], *, frozen: bool
    ) -> dict[int, int] | None:
        """Return how many bits the parts get that may hold only these shares of their bytes.

        None: collapsing is not enough for one of them, and new groups can still be refused. When
        they are, the old ones may go on growing: then it need only be worth it.
        """
        bits = {part: self._enough(part, panes, share, frozen) for part, share in shares.items()}
        if None in bits.values() and not frozen:
            return None
        return {part: enough for part, enough in bits.items() if enough is not None}

    def _enough(self, part: int, panes: Collection[Pane], share: float, frozen: bool) -> int | None:
        """The most bits with which the heaviest histogram holds this share of its bytes."""
        if self.bits.get(part) == self.fewest.get(part):
            return None
        held = [synopsis for pane in panes for synopsis in pane.read_by(part)]
        heaviest = max(held, key=lambda synopsis: int(synopsis.size_bytes))
        size_bytes = heaviest.size_bytes
        if size_bytes < _AGAIN * self._tried.get(part, 0):
            return None
        trial = heaviest.select(np.arange(heaviest.groups))
        for bits in range(self.bits[part] - 1, self.fewest[part] - 1, -1):
            if trial.resize(bits).size_bytes <= share * size_bytes:
                return bits
        if trial.size_bytes >= _WORTH * size_bytes:
            self._tried[part] = size_bytes
            return None
        return self.fewest[part] if frozen else None

    def widen(self, bits: Mapping[int, int], panes: Iterable[Pane]) -> None:
        """Collapse the histograms of these parts in all of these panes."""
        self.bits |= bits
        for pane in panes:
            self.fit(pane)

    def hold_alone(self, panes: Collection[Pane], stricter: Collection[Self]) -> None:
        """Collapse the histograms without groups of open panes that hold too many buckets.

        Each by itself: few values are of all sizes, and merges take the wider buckets.

        stricter: of the queries that take these panes, whose targets are to be met, too.
        """
        for part, bits in self.fewest.items():
            held = [synopsis for pane in panes for synopsis in pane.read_by(part)]
            large = [synopsis for synopsis in held if synopsis.size_bytes > ALONE_BYTES_MAX]
            if large:  # Hardly ever.
                least = max([bits, *(other.fewest[part] for other in stricter)])
            for synopsis in large:
                while synopsis.size_bytes > ALONE_BYTES_MAX and synopsis.mantissa_bits > least:
                    synopsis.resize(synopsis.mantissa_bits - 1)

    def fit(self, pane: Pane) -> None:
        """Collapse a pane's histograms to the present bits."""
        for part, bits in self.bits.items():
            for synopsis in pane.read_by(part):
                synopsis.resize(min(bits, synopsis.mantissa_bits))

    @property
    def note(self) -> str | None:
        """What answers say about buckets that are wider than they usually are."""
        if not self.bits or min(self.bits.values()) == GroupedLogBuckets.profile.default:
            return None
        return (
            f"buckets of QUANTILE are 2^-{min(self.bits.values())} wide, so that groups have room"
        )

    def learn(self, pane: Pane) -> bool:
        """Take over the bits of a stored pane where they are fewer; whether any are."""
        before = dict(self.bits)
        for part in self.bits:
            self.bits[part] = min(self.bits[part], *(s.mantissa_bits for s in pane.read_by(part)))
        return self.bits != before


def _fewest_bits(query: BoundQuery) -> int:
    """With a relative target those that meet it, so that the cap never makes a query miss it."""
    profile = GroupedLogBuckets.profile
    if query.target is None or query.target.kind is not TargetKind.RELATIVE:
        return _WIDEST
    try:
        return max(_WIDEST, profile.for_error(query.target.size, confidence=query.confidence))
    except BadParameter:
        return profile.default
