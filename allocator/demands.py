"""An allocation problem as data: options of synopses, their readers, and the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from allocator.errors import BadBudget, BadDemand

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

BYTES_END = 1 << 63
_BROKEN = 1e3  # times the largest weighted loss of a reader: for a promise that is not kept
_LOSS_MIN = 1e-9  # Stands in for the largest loss if no reader can lose anything.
_APART = 1e30  # Weights that are farther apart cannot be told from each other in a double.

_Kind = TypeVar("_Kind")


def _unchecked(kind: type[_Kind], **columns: object) -> _Kind:
    """Made of rows of what was checked as a whole: they need not be checked again."""
    made: _Kind = object.__new__(kind)
    for name, column in columns.items():
        object.__setattr__(made, name, column)
    return made


def _joined(columns: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *columns])


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What n synopses may be: each is given one of its k options.

    An option is a size with a share of the stream that is read. Rows with fewer than k options
    are filled up with options whose error is inf: those are never given.

    names: [n], for errors and explanations.
    size_bytes: int64 [n, k], >= 0.
    cost_ns: float64 [n, k], >= 0; CPU per second of stream: ns per tuple that arrives, times the
      tuples/s at the present rate.
    error: float64 [n, k], >= 0; what the synopsis' answers are then predicted to err by, in the
      unit that its readers weigh.
    best_error, worst_error: float64 [n]; of the best and the worst option of each.
    most_ns: float64 [n]; of the dearest option of each.
    size_float: size_bytes as float64, which prices are multiplied with again and again.
    """

    names: Sequence[str]
    size_bytes: Integers
    cost_ns: Floats
    error: Floats
    best_error: Floats = field(init=False)
    worst_error: Floats = field(init=False)
    most_ns: Floats = field(init=False)
    size_float: Floats = field(init=False)

    def __post_init__(self) -> None:
        shape = (len(self.names), self.error.shape[1])
        assert self.size_bytes.shape == self.cost_ns.shape == self.error.shape == shape
        self._require("size_bytes", ">= 0", self.size_bytes, self.size_bytes >= 0)
        cost = self.cost_ns
        self._require("cost_ns", ">= 0 and finite", cost, np.isfinite(cost) & (cost >= 0))
        self._require("error", ">= 0, or inf for no option", self.error, self.error >= 0)
        object.__setattr__(self, "best_error", self.error.min(1, initial=np.inf))
        worst = np.where(np.isfinite(self.error), self.error, 0.0).max(1, initial=0.0)
        object.__setattr__(self, "worst_error", worst)
        object.__setattr__(self, "most_ns", cost.max(1, initial=0.0))
        object.__setattr__(self, "size_float", self.size_bytes.astype(np.float64))
        none = np.isinf(self.best_error)
        if none.any():
            raise BadDemand(self.names[int(none.argmax())], "error", "finite in an option", np.inf)
        self._require_countable()

    def _require_countable(self) -> None:
        largest = self.size_bytes.max(1, initial=0)
        if sum(largest.tolist()) >= BYTES_END:
            at = int(largest.argmax())
            rule = "small enough that all together stay below 2^63 bytes"
            raise BadDemand(self.names[at], "size_bytes", rule, int(largest[at]))

    @classmethod
    def joined(cls, parts: Sequence[Options]) -> Options:
        """The options of all synopses of several, one part after the other.

        Raises:
          BadDemand: together they are 2^63 bytes or more.
        """
        n = sum(map(len, parts))
        width = max((part.error.shape[1] for part in parts), default=0)
        size_bytes, cost_ns = np.zeros((n, width), np.int64), np.zeros((n, width))
        error, first = np.full((n, width), np.inf), 0
        for part in parts:
            rows, filled = slice(first, first + len(part)), part.error.shape[1]
            size_bytes[rows, :filled] = part.size_bytes
            cost_ns[rows, :filled] = part.cost_ns
            error[rows, :filled] = part.error
            first += len(part)
        joined = _unchecked(
            cls,
            names=[name for part in parts for name in part.names],
            size_bytes=size_bytes,
            cost_ns=cost_ns,
            error=error,
            best_error=_joined([part.best_error for part in parts]),
            worst_error=_joined([part.worst_error for part in parts]),
            most_ns=_joined([part.most_ns for part in parts]),
            size_float=size_bytes.astype(np.float64),
        )
        joined._require_countable()
        return joined

    def __len__(self) -> int:
        return len(self.names)

    def taken(self, choice: Integers) -> tuple[Integers, Floats]:
        """The bytes and the ns of a choice, [n] each."""
        at = np.arange(len(choice)), choice
        return self.size_bytes[at], self.cost_ns[at]

    def only(self, rows: Integers) -> Options:
        """The options of some synopses, in this order."""
        return _unchecked(
            Options,
            names=[self.names[row] for row in rows.tolist()],
            size_bytes=self.size_bytes[rows],
            cost_ns=self.cost_ns[rows],
            error=self.error[rows],
            best_error=self.best_error[rows],
            worst_error=self.worst_error[rows],
            most_ns=self.most_ns[rows],
            size_float=self.size_float[rows],
        )

    def _require(self, field: str, rule: str, column: NDArray[np.generic], good: Booleans) -> None:
        if not good.all():
            row, option = np.argwhere(~good)[0]
            raise BadDemand(self.names[row], field, rule, column[row, option].item())


@dataclass(frozen=True, slots=True, eq=False)
class Readers:
    """Aggregates of queries that read synopses; m readers, of which several may share a synopsis.

    synopsis: int64 [m]; row of the options.
    weight: float64 [m], > 0; importance of this reader's error. The weight of an inactive query is
      negligible, so the query keeps only what costs other readers nothing.
    scale: float64 [m], > 0; the reader's error is scale * the synopsis' (of another confidence).
    target: float64 [m], > 0; the largest error that it accepts; inf: any.
    forfeit: float64 [m], >= 0; what a missed target counts beside the error, in error: little where
      the answer is only wider, the whole value (1) where it is left out.
    promised: bool [m]; a target that was promised is kept before all else.
    """

    synopsis: Integers
    weight: Floats
    scale: Floats
    target: Floats
    forfeit: Floats
    promised: Booleans

    def __post_init__(self) -> None:
        for name, rule, good in (
            ("weight", "> 0 and finite", np.isfinite(self.weight) & (self.weight > 0)),
            ("scale", "> 0 and finite", np.isfinite(self.scale) & (self.scale > 0)),
            ("target", "> 0, or inf for none", self.target > 0),
            ("forfeit", ">= 0 and finite", np.isfinite(self.forfeit) & (self.forfeit >= 0)),
            ("synopsis", ">= 0", self.synopsis >= 0),
        ):
            if not good.all():
                at = int((~good).argmax())
                raise BadDemand(f"reader {at}", name, rule, getattr(self, name)[at].item())

    def __len__(self) -> int:
        return len(self.synopsis)

    def only(self, chosen: Integers, synopsis: Integers) -> Readers:
        """Some of them, whose synopses have other rows now: [chosen] each."""
        return _unchecked(
            Readers,
            synopsis=synopsis,
            weight=self.weight[chosen],
            scale=self.scale[chosen],
            target=self.target[chosen],
            forfeit=self.forfeit[chosen],
            promised=self.promised[chosen],
        )


class Penalty(NamedTuple):
    """What a missed target of unit weight counts. above: a promise, where wishes count `missed`."""

    missed: float
    above: float


@dataclass(frozen=True, slots=True)
class Budget:
    """What there is: bytes of synopses, and ns of CPU per second of stream (inf: no limit)."""

    size_bytes: int
    cost_ns: float = np.inf

    def __post_init__(self) -> None:
        if not isinstance(self.size_bytes, int | np.integer):
            raise BadBudget("size_bytes", "a whole number", self.size_bytes)
        if not 0 <= self.size_bytes < BYTES_END:
            raise BadBudget("size_bytes", "in [0, 2^63)", self.size_bytes)
        if not self.cost_ns >= 0:
            raise BadBudget("cost_ns", ">= 0, or inf", self.cost_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """Options, their readers, and what the synopses are now.

    present: int64 [n]; the option that each has, -1 for a new one.
    moving: float64 [n], >= 0; what another option than the present one costs, in weighted error:
      panes that are built keep their precision, and a change touches memory.
    """

    options: Options
    readers: Readers
    present: Integers
    moving: Floats

    @classmethod
    def new(cls, options: Options, readers: Readers) -> Demands:
        """Demands of synopses of which none stands yet."""
        n = len(options)
        return cls(options, readers, np.full(n, -1, np.int64), np.zeros(n))

    def __post_init__(self) -> None:
        n, k = self.options.error.shape
        assert self.present.shape == self.moving.shape == (n,)
        if len(self.readers) and self.readers.synopsis.max() >= n:
            raise BadDemand("readers", "synopsis", f"< {n}", int(self.readers.synopsis.max()))
        for name, rule, column, good in (
            ("present", f"in [-1, {k})", self.present, (self.present >= -1) & (self.present < k)),
            (
                "moving",
                ">= 0 and finite",
                self.moving,
                np.isfinite(self.moving) & (self.moving >= 0),
            ),
        ):
            if not good.all():
                at = int((~good).argmax())
                raise BadDemand(self.options.names[at], name, rule, column[at].item())
        self._require_finite_losses()

    def _require_finite_losses(self) -> None:
        """What is weighed must stay a number, or an option would look like none."""
        readers, options = self.readers, self.options
        with np.errstate(over="ignore"):
            lost = options.worst_error[readers.synopsis] * readers.scale + readers.forfeit
            weighed = np.cumsum(readers.weight * lost)
            spent = options.most_ns.sum()
        if not np.isfinite(weighed).all():
            at = int(np.isinf(weighed).argmax())
            rule = "small enough that all losses together stay finite"
            raise BadDemand(f"reader {at}", "weight", rule, readers.weight[at].item())
        if not np.isfinite(spent):
            at = int(options.most_ns.argmax())
            rule = "small enough that all costs together stay finite"
            raise BadDemand(options.names[at], "cost_ns", rule, options.most_ns[at].item())

    def loss(self) -> Floats:
        """[n, k]: what each option loses: weighted errors, forfeits, and what moving costs.

        inf where there is no option. Promised targets are another matter.
        """
        return self._loss(0.0, 0.0)

    def _loss(self, promise: float, wish: float) -> Floats:
        """The loss, where a missed target of unit weight counts so much: promised, or another."""
        readers = self.readers
        weights = np.bincount(
            readers.synopsis, readers.weight * readers.scale, minlength=len(self.options)
        )
        with np.errstate(invalid="ignore"):  # 0 * inf: no reader reads it, and it is no option.
            loss = self.options.error * weights[:, None]
        unread = np.flatnonzero(weights == 0.0)
        if len(unread):
            loss[unread] = np.where(np.isfinite(self.options.error[unread]), 0.0, np.inf)
        counted = readers.weight * np.where(readers.promised, promise, readers.forfeit + wish)
        rows, missed = self._counted_missed(counted, counted > 0)
        loss[rows] += missed
        standing = np.flatnonzero(self.present >= 0)
        if len(standing):
            loss[standing] += self.moving[standing, None]
            loss[standing, self.present[standing]] -= self.moving[standing]
        return loss

    def missed_promises(self) -> tuple[Integers, Floats]:
        """The weight of promised targets that options miss: rows, [r], and of these, [r, k]."""
        return self._counted_missed(self.readers.weight, self.readers.promised)

    def missed(self) -> tuple[Integers, Floats]:
        """Count the targets that options miss and another option meets: rows, [r], and [r, k]."""
        return self._counted_missed(np.ones(len(self.readers)), np.isfinite(self.readers.target))

    def _counted_missed(self, counted: Floats, chosen: Booleans) -> tuple[Integers, Floats]:
        """Sum `counted`, [m], of the chosen readers whose target an option misses.

        Targets that no option meets are not counted, because no choice can change them.

        Returns:
          rows that such readers read, [r], ascending, and the sum of theirs, [r, k].
        """
        some = np.flatnonzero(chosen & self.reachable())
        at = self.readers.synopsis[some]
        errors = self.options.error[at]
        if (self.readers.scale[some] != 1.0).any():
            errors *= self.readers.scale[some, None]
        missed = (errors > self.readers.target[some, None]) * counted[some, None]
        if (np.diff(at) > 0).all():
            return at, missed
        rows, place = np.unique(at, return_inverse=True)  # Several read one synopsis.
        total = np.zeros((len(rows), missed.shape[1]))
        np.add.at(total, place, missed)
        return rows, total

    def loss_of(self, choice: Integers, error: Floats | None = None) -> float:
        """What a choice, [n], loses altogether; promised targets are another matter.

        error: [n]; of the choice, where it is known.
        """
        readers = self.readers
        if error is None:
            error = self.options.error[np.arange(len(choice)), choice]
        errors = readers.scale * error[readers.synopsis]
        missed = self.reachable() & (errors > readers.target) & ~readers.promised
        moved = (self.present >= 0) & (choice != self.present)
        lost = readers.weight * (errors + np.where(missed, readers.forfeit, 0.0))
        return float(lost.sum() + self.moving[moved].sum())

    def ranked_loss(self, penalty: Penalty | None = None, *, all_kept: bool = False) -> Floats:
        """[n, k]: the loss, with a penalty for promises that are not kept.

        For decisions that look at one synopsis after the other: a step that breaks a promise then
        comes after all steps that only lose precision.

        Args:
          penalty: None: their own.
          all_kept: any target is to be kept, what is promised first.
        """
        unit = self.penalty() if penalty is None else penalty
        return self._loss(unit.above, unit.missed) if all_kept else self._loss(unit.missed, 0.0)

    def penalty(self) -> Penalty:
        """Return the penalty of missed targets; each exceeds all that readers can lose else."""
        readers = self.readers
        lost = self.options.worst_error[readers.synopsis] * readers.scale + readers.forfeit
        weight, asks = readers.weight, np.isfinite(readers.target)
        heaviest, lightest = weight.max(initial=0.0), weight[asks].min(initial=np.inf)
        apart = min(max(heaviest / lightest, 1.0), _APART)
        missed = _BROKEN * apart * max(float(lost.max(initial=0.0)), _LOSS_MIN)
        return Penalty(missed, _BROKEN * apart * missed)

    def only(self, rows: Integers) -> Demands:
        """The demands of some synopses, in this order, and their readers."""
        place = np.full(len(self.options), -1, np.int64)
        place[rows] = np.arange(len(rows))
        synopsis = place[self.readers.synopsis]
        chosen = np.flatnonzero(synopsis >= 0)
        return _unchecked(
            Demands,
            options=self.options.only(rows),
            readers=self.readers.only(chosen, synopsis[chosen]),
            present=self.present[rows],
            moving=self.moving[rows],
        )

    def reachable(self) -> Booleans:
        """[m]: whether a reader has a target that some option meets."""
        best = self.options.best_error[self.readers.synopsis]
        met: Booleans = best * self.readers.scale <= self.readers.target
        return met & np.isfinite(self.readers.target)
