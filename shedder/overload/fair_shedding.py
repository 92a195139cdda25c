"""Choice of levels for several tenants: a share of the budget each, by CPU quota and weight."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shedder.overload.controller import CostRange
from shedder.overload.shedding_steps import Steps, Unit

LOOKS = 5  # A quota that gets looser, because less comes, is taken as it is after so many looks.


def fair_shares(
    least: NDArray[np.float64],
    full: NDArray[np.float64],
    weight: NDArray[np.float64],
    budget: float,
) -> NDArray[np.float64]:
    """Split CPU by weight among tenants with a least and a largest need.

    Args:
      least, full: [n], 0 <= least <= full, finite. weight: [n], > 0. budget: >= 0, or inf.

    Returns:
      share: [n]; least <= share <= full. share.sum() is the budget, clipped to the sums of least
      and of full. All shares strictly between least and full are equal per weight.
    """
    if budget >= full.sum():
        return full.copy()
    if budget <= least.sum():
        return least.copy()
    # The sum of clip(level * weight) rises in level, piece by piece between these edges.
    edges = np.unique(np.concatenate([least / weight, full / weight]))
    sums = np.clip(edges[:, None] * weight, least, full).sum(1)
    above = int(np.searchsorted(sums, budget))
    low, high = edges[above - 1], edges[above]
    part = (budget - sums[above - 1]) / (sums[above] - sums[above - 1])
    return np.asarray(np.clip((low + part * (high - low)) * weight, least, full), np.float64)


@dataclass(slots=True)
class Caps:
    """Quotas of CPU in ns per arriving tuple; stable while what comes varies.

    More comes, so a tuple may cost less: at once. Less comes: when it has been so for LOOKS looks.
    """

    _seen: dict[str, deque[float]] = field(default_factory=dict)

    def look(self, quotas_ns_per_s: Mapping[str, float], tuples_per_s: float) -> dict[str, float]:
        """By tenant, what its synopses may take per tuple that arrives at any stream."""
        self._seen = {
            tenant: self._seen.get(tenant, deque(maxlen=LOOKS)) for tenant in quotas_ns_per_s
        }
        for tenant, seen in self._seen.items():
            seen.append(quotas_ns_per_s[tenant] / tuples_per_s if tuples_per_s > 0 else np.inf)
        return {tenant: float(min(seen)) for tenant, seen in self._seen.items()}


@dataclass(frozen=True, slots=True, eq=False)
class FairSteps:
    """A ladder for each tenant, and what each may cost at most.

    tenants, steps: in the same order. rows: of each, which units are its, int64 [its units].
    cap_ns, weight: float64 [tenants]; per arriving tuple, inf where there is no quota.
    """

    tenants: tuple[str, ...]
    steps: tuple[Steps, ...]
    rows: tuple[NDArray[np.int64], ...]
    cap_ns: NDArray[np.float64]
    weight: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        units: Sequence[Unit],
        owner: Mapping[str, str],
        caps_ns: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> FairSteps:
        """The ladders of all units.

        Args:
          units: of all queries. owner: the tenant of each query.
          caps_ns: by tenant, as `Caps` has it; no cap where there is none. weights: by tenant, 1
            where there is none.
        """
        owned: dict[str, list[int]] = {}
        for at, unit in enumerate(units):
            owned.setdefault(owner[unit.query], []).append(at)
        tenants = tuple(sorted(owned))
        return cls(
            tenants,
            tuple(Steps.of([units[at] for at in owned[tenant]]) for tenant in tenants),
            tuple(np.array(owned[tenant], np.int64) for tenant in tenants),
            np.array([caps_ns.get(tenant, np.inf) for tenant in tenants]),
            np.array([weights.get(tenant, 1.0) for tenant in tenants]),
        )

    @property
    def ends(self) -> CostRange:
        """What is to be had under the quotas, and what is left at the foot, in ns per tuple."""
        least, full = self._ends()
        return CostRange(float(full.sum()), float(least.sum()))

    def levels(self, budget_ns: float) -> NDArray[np.int64]:
        """Decide the level of each unit within a budget of all, [units]; inf: within the quotas."""
        least, full = self._ends()
        shares = fair_shares(least, full, self.weight, budget_ns)
        found = np.zeros(sum(map(len, self.rows)), np.int64)
        for rows, steps, share in zip(self.rows, self.steps, shares.tolist(), strict=True):
            found[rows] = steps.levels(share * (1 + 1e-12))
        return found

    def _ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each costs at its foot, and at most under its quota: float64 [tenants]."""
        least = np.array([steps.ends.least_ns for steps in self.steps], np.float64)
        full = np.array([steps.ends.full_ns for steps in self.steps], np.float64)
        return least, np.maximum(np.minimum(full, self.cap_ns), least)
