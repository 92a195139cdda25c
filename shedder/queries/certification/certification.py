"""Certification: whether a query's intervals hold as often as they say, by looks at the truth.

A look compares one answer with the exact one. It can take a certification away in two ways, and
each may do so wrongly, ever, with a probability of at most ALARM / 2, however often one looks:

A *refutation*: what was said for certain is wrong, or the truth lies outside of an interval that
was asked for at `strict_confidence`: the k-th look gives away 6/(pi k)^2 of ALARM / 2, and each of
its n intervals an n-th of that. That is a union bound, so values may share their randomness, and
looks: an answer's groups have the same tuples, windows overlap, and hashes of values stay.

A *bet*: at even odds, bets against intervals that miss with probability delta do not make rich.
Wealth W = mean_j prod (1 + b_j (x - delta) / delta), where x is the share of a look's
intervals that missed, has expectation at most 1 if each look's misses are expected to be at most
delta given the looks before; so W ever reaches r with probability at most 1/r (Ville 1939; Shafer
2021, JRSS A 184(2); Waudby-Smith & Ramdas 2024, JRSS B 86(1)). So only looks at tuples that no
look before has seen are bet on, and only intervals whose randomness is of the tuples, not of the
hashes of their values.

A query that has lost its certification gets it back when looks refute the opposite, that
`broken_share` of the values or more are outside, begun anew whenever that is ahead: one whose
values still are gets it back after 1 / REGAIN looks in the mean or later (Lorden 1971, Ann. Math.
Stat. 42(6), Thm 2), and then loses it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from shedder.queries.answers.answer import Answer

ALARM = 1e-3
"""The probability that a query whose intervals hold as they say ever loses its certification."""

REGAIN = 0.01
"""One look in 1 / REGAIN, at most, gives it back to a query whose values are still outside."""

FINEST = 1e-12
"""No interval is asked for that may miss more rarely: 1 less it, in parts, must be below 1."""

_NOTE = "not certified: "
_BETS = np.array([0.5, 0.2, 0.05, 0.01])
_BOLDNESS = 0.9  # Of the bet that one look with misses alone would lose all of.
_BROKEN_LEAST = 0.1
_BROKEN_TIMES = 3.0


@dataclass(frozen=True, slots=True)
class AuditSample:
    """One answer beside the truth.

    values: how many values were compared. missed: of these, those whose truth was outside.
    fresh, fresh_missed: the same of intervals that may be bet on. delta: the probability that
    such an interval may miss with, in [0, 1). refuted: what cannot be chance, in words; or "".
    chosen: the rows were chosen by their values, so that none may be shown.
    placed: whether each row that is `certain` is in its place; None if no row is. It is one value
      more. All places of an answer together may be wrong with probability delta.
    """

    values: int
    missed: int
    fresh: int
    fresh_missed: int
    delta: float
    refuted: str = ""
    chosen: bool = False
    placed: bool | None = None

    @property
    def missed_share(self) -> float | None:
        """The share to bet on: its mean is at most delta; None if there is nothing to bet on."""
        of_values = self.fresh_missed / max(1, self.fresh) if self.fresh or self.chosen else None
        of_places = None if self.placed is None else float(not self.placed)
        shares = [share for share in (of_values, of_places) if share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def overlapping(self) -> AuditSample:
        """Return the same look, of tuples that an earlier look has bet on."""
        return replace(self, fresh=0, fresh_missed=0, chosen=False, placed=None)


@dataclass(frozen=True, slots=True)
class Certification:
    """What all looks so far come to.

    looks, values, missed: since the beginning. log_wealth: of each bettor against the intervals.
    lost: why the certification is lost, or "". log_trust: while it is, the wealth of a bettor that
    few values are outside again. losses: how often it was lost.
    """

    looks: int = 0
    values: int = 0
    missed: int = 0
    log_wealth: tuple[float, ...] = (0.0,) * len(_BETS)
    lost: str = ""
    log_trust: float = 0.0
    losses: int = 0

    @classmethod
    def restored(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`, from JSON."""
        return cls(**{**fields, "log_wealth": tuple(fields["log_wealth"])})

    @property
    def certified(self) -> bool | None:
        """None: nothing was compared yet."""
        return None if self.looks == 0 else not self.lost

    @property
    def evidence(self) -> float:
        """The mean wealth of bets against the intervals; 2 / ALARM takes the certification."""
        return float(np.exp(np.array(self.log_wealth)).mean())

    def strict_confidence(self, intervals: int) -> float | None:
        """That the next look's intervals are to be asked for, to refute by.

        Args:
          intervals: that may miss by chance in it, at most; >= 1.

        Returns:
          The confidence of each; None: it would be so close to 1 that none refutes.
        """
        assert intervals >= 1, intervals
        delta = ALARM / 2 * 6.0 / (math.pi * (self.looks + 1)) ** 2 / intervals
        return None if delta < FINEST else 1.0 - delta


def may_miss(confidence: float) -> float:
    """The probability that an interval with this confidence may miss with."""
    return max(0.0, 1.0 - confidence)


def broken_share(delta: float) -> float:
    """The share of misses from which on intervals that may miss delta of the time are broken."""
    return max(_BROKEN_LEAST, _BROKEN_TIMES * delta)


def marked(answer: Answer, certification: Certification) -> Answer:
    """An answer that says what its query's audits have come to."""
    certified = certification.certified
    if certified is None or (certified and answer.certified):
        return answer
    notes = tuple(note for note in answer.notes if not note.startswith(_NOTE))
    if certification.lost:
        notes += (f"{_NOTE}{certification.lost}",)
    return replace(answer, certified=certified, notes=notes)


def facts_of(certification: Certification) -> dict[str, str]:
    """For the control table: numbers, where there are any."""
    certified, values = certification.certified, certification.values
    return {
        "certified": "" if certified is None else str(int(certified)),
        "certification_lost": certification.lost,
        "certification_losses": str(certification.losses),
        "audited_answers": str(certification.looks),
        "audited_values": str(values),
        "audited_missed": str(certification.missed),
        "audited_coverage": "" if not values else f"{1 - certification.missed / values:.6f}",
        "audited_evidence": f"{certification.evidence:.6g}",
    }


def after(before: Certification, look: AuditSample) -> Certification:
    """The certification when one more answer was compared."""
    assert 0 <= look.missed <= look.values, look
    assert 0 <= look.fresh_missed <= look.fresh, look
    counted = replace(
        before,
        looks=before.looks + 1,
        values=before.values + look.values,
        missed=before.missed + look.missed,
    )
    return _doubted(counted, look) if before.lost else _trusted(counted, look)


def _trusted(now: Certification, look: AuditSample) -> Certification:
    if look.refuted:
        return replace(now, lost=look.refuted, log_trust=0.0, losses=now.losses + 1)
    share = look.missed_share
    if not look.delta or share is None:
        return now
    surprise = (share - look.delta) / look.delta
    wealth = np.array(now.log_wealth) + np.log1p(_BETS * surprise)
    now = replace(now, log_wealth=tuple(wealth.tolist()))
    if now.evidence < 2.0 / ALARM:
        return now
    reason = (
        f"{now.missed:,} of {now.values:,} values in {now.looks:,} audited answers were outside "
        "of their intervals, more than chance allows"
    )
    return replace(now, lost=reason, log_trust=0.0, losses=now.losses + 1)


def _doubted(now: Certification, look: AuditSample) -> Certification:
    if look.refuted:
        return replace(now, lost=look.refuted, log_trust=0.0)
    if not look.values:
        return now  # Of intervals that are not shown, it tells nothing.
    broken = broken_share(look.delta)
    bet = _BOLDNESS / (1.0 - broken)
    trust = now.log_trust + math.log1p(bet * (broken - look.missed / look.values))
    if trust < -math.log(REGAIN):
        return replace(now, log_trust=max(trust, 0.0))
    return replace(now, lost="", log_trust=0.0, log_wealth=(0.0,) * len(_BETS))
