"""Predicted precision of a row query that keeps a sample of keys, and the bytes of each level.

The sample of keys commutes with the plan: it is one selection above the exact plan
(`thinning_keys`). So a row of the exact result is missed with probability 1 - 2^-level, and no row
is false, also above EXCEPT and NOT EXISTS. Independent samples of the streams would give false
rows there. `allocator/plan_precision` composes the precision of a plan's steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from allocator.plan_precision.memory import rates
from allocator.plan_precision.operators import Selection
from allocator.plan_precision.precision import EXACT, Precision
from allocator.plan_precision.query_plan import Step, precision_of
from shedder.cql.text.sampling_fractions import share_text
from shedder.dataflow.estimates.state_bytes import StateBytes
from shedder.engine.dataflow.thinning_levels import LEVEL_MAX

PREDICTED = "predicted precision"  # Name of the fact of the present level.
EXPECTED = "expected precision"  # Name of the fact of the level that full windows need.

_KEPT_KEYS = "kept keys"
_PLAN = Step(_KEPT_KEYS, Selection(), (Step("exact rows"),))
# Of all keys, those of each stratum.
_STRATUM_SHARES = np.array([*(0.5**n for n in range(1, LEVEL_MAX + 1)), 0.5**LEVEL_MAX])


@dataclass(frozen=True, slots=True)
class RowPrecision:
    """Precision of the rows of a query at a level.

    false_negatives: probability that a row of the exact result is missed.
    false_positives: probability that a row is not in the exact result.
    """

    level: int
    false_negatives: float
    false_positives: float

    @classmethod
    @cache
    def at(cls, level: int | None) -> RowPrecision:
        """Return the precision of a level; None: the query keeps all keys."""
        own = EXACT if level is None else Precision.of(2.0**-level, 0.0)
        found = precision_of(_PLAN, {_KEPT_KEYS: own})
        return cls(level or 0, float(found.false_negatives), float(found.false_positives))

    @property
    def text(self) -> str:
        """The level and both rates, for people."""
        missed, wrong = (f"{rate:.4g}" for rate in (self.false_negatives, self.false_positives))
        kept = f"{share_text(self.level)} of the keys" if self.level else "all keys"
        return f"level {self.level}, {kept}: false negatives {missed}, false positives {wrong}"


def losses() -> NDArray[np.float64]:
    """Return false negatives and false positives together at each level, [LEVEL_MAX + 1]."""
    own = Precision.of(np.ldexp(1.0, -np.arange(LEVEL_MAX + 1)), 0.0)
    return rates(precision_of(_PLAN, {_KEPT_KEYS: own}))


def bytes_by_level(full_bytes: int, empty_bytes: int) -> NDArray[np.int64]:
    """Return what the operators are expected to hold at each level, int64 [LEVEL_MAX + 1].

    Each stratum has operators of its own, so a level pays what empty ones take for each stratum.

    Args:
      full_bytes: of the operators with the tuples of all keys. empty_bytes: without tuples.
    """
    strata = empty_bytes + full_bytes * _STRATUM_SHARES
    sizes: NDArray[np.int64] = np.ceil(np.cumsum(strata[::-1])[::-1]).astype(np.int64)
    return sizes


def expected_text(
    full: Sequence[StateBytes], *, empty_bytes: int, beside_bytes: int, bytes_max: int
) -> str:
    """Return in words what a query is expected to get within its limit of bytes.

    Args:
      full: bytes of each operator with all keys, or why there is no number.
      empty_bytes: as of `bytes_by_level`. beside_bytes: of what a query holds beside its operators.
      bytes_max: of its whole state.
    """
    reason = next((each for each in full if isinstance(each, str)), None)
    if reason is not None:
        return f"none before its bytes are known: {reason}"
    full_bytes = sum(each for each in full if isinstance(each, int))
    sizes = beside_bytes + bytes_by_level(full_bytes, empty_bytes)
    fitting = np.flatnonzero(sizes <= bytes_max)
    if not len(fitting):
        return (
            f"none: level {LEVEL_MAX} is expected to hold {sizes[-1]:,} bytes, "
            f"row_query_bytes_max is {bytes_max:,}"
        )
    level = int(fitting[0])
    return f"{RowPrecision.at(level).text}; {sizes[level]:,} of {bytes_max:,} bytes expected"
