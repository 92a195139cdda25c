"""The values of an expression in two strata: those of extreme rows, and a sample of the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Column, Expression
from shedder.queries.sampling.anchored_values import is_beyond_doubles
from shedder.queries.sampling.sampled_query import Sampled
from synopses.intervals.certain_stratum import NARROWED_MAX, CertainValues
from synopses.intervals.sample_values import SampledValues


@dataclass(frozen=True, slots=True, eq=False)
class SplitValues:
    """What `certain_stratum` asks for: the certain values, and a sample of the others."""

    others: SampledValues
    certain: CertainValues

    @property
    def unseen(self) -> NDArray[np.bool_]:
        """bool [groups], whether no value was seen."""
        unseen: NDArray[np.bool_] = (self.others.matched == 0) & ~self.certain.any
        return unseen

    @classmethod
    def of(cls, sampled: Sampled, node: Expression) -> SplitValues | None:
        """Split the finite values of an expression.

        Returns:
          None where `gains_by_split` is false, and where doubles do not hold squares.
        """
        extremes = sampled.extremes
        if extremes is None or not gains_by_split(sampled, node):
            return None
        low, high = extremes.range(node)
        present = sampled.rows.present(node)
        values, ids = np.asarray(present.values, np.float64), sampled.present_ids(node)
        are_others = extremes.are_others
        if present.rows is not None:
            are_others = are_others[present.rows]
        read, population = extremes.read, extremes.population
        chosen = are_others & np.isfinite(values)
        held, held_ids = extremes.present(node)
        is_counted = sampled.is_whole and isinstance(node, Column)
        everything = False
        if is_counted:  # As in `Sampled.sample_of`.
            assert isinstance(node, Column)
            read = int(np.count_nonzero(are_others))
            population = sampled.view.basics[node.name].rows - len(held)
            everything = int(np.count_nonzero(chosen)) == read
            if not 0 < read < population:
                return None
        held = np.asarray(held, np.float64)
        finite = np.isfinite(held)
        groups = sampled.groups.count
        certain = CertainValues.of(held[finite], ids=held_ids[finite], groups=groups)
        if not certain.are_finite:
            return None
        others = SampledValues.by_group(
            values[chosen],
            ids=None if everything else ids[chosen].astype(np.int32),
            groups=groups,
            population=population,
            read=read,
            low=low,
            high=high,
            everything=everything,
            whole_numbers=node.type is not ColumnType.DOUBLE,
            shuffle_seed=sampled.view.shuffle_seed,
        )
        return cls(others, certain)


def gains_by_split(sampled: Sampled, node: Expression) -> bool:
    """Return whether the range of the others is much narrower than that of all values.

    It depends on ranges alone, which no random key decides. False where there are no extreme rows,
    and where doubles do not hold the values.
    """
    if sampled.extremes is None or is_beyond_doubles(sampled, node):
        return False
    low, high = sampled.extremes.range(node)
    whole = sampled.range(node)
    with np.errstate(invalid="ignore"):
        return bool(high - low < NARROWED_MAX * (whole[1] - whole[0]))
