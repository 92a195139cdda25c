"""A sequential test of a coverage claim, which stops as soon as the claim is certain or refuted.

The claim: given the trials before, each interval holds the truth with probability `confidence` at
least. The rival: each interval holds with probability `confidence - margin` at most. Two players
bet on every trial, one against the claim and one against the rival (a betting e-process). The
capital of a player whose opponent is right has expectation 1 at most. That capital reaches 1/x with
probability x at most (Ville's inequality). With the stakes below and one yes or no in a trial, the
two capitals are the likelihood ratios of Wald's sequential probability ratio test.

The test ends with the first of these:
  - the player against the claim has 1/RUN_ALARM: the claim is refuted;
  - the player against the rival has 1/MISSED: the claim holds;
  - `trials` trials are done: the gate of tests/truth.py decides, as if the number had been fixed.

Errors:
  - An honest interval is refuted with probability 2 RUN_ALARM at most, one for the bets and one for
    the gate. With shares (several intervals in a trial) the gate counts e times (Bentkus).
  - A rival passes with probability MISSED at most above that of the fixed gate.
  - An interval between claim and rival passes with a probability up to 0.2 above that of the fixed
    gate that the test replaces. A gate on literal seeds decides once; this test decides again with
    every commit.

With the default margin the fixed gate of as many trials itself misses the rival with probability
MISSED. An honest interval then takes about a fifth of the trials. Seeds may be those of the run. A
test that replaces `gate(n, confidence)` on literal seeds allows 1.25 n trials, and then notices the
same rival.

Sources: Wald 1945, Ann. Math. Statist. 16(2), section 3; Ville 1939; Waudby-Smith & Ramdas 2024,
JRSS B 86(1), section 4 (bets on means of bounded values); Bentkus 2004, Ann. Probab. 32(2),
Theorem 1.2 (tails of sums of bounded martingale differences).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from scipy import stats

from tests.truth import EVALUATED, RUN_ALARM

MISSED = 1e-3  # Probability that a rival passes in excess of the fixed gate.
GATES = 2  # Gates that a yes-or-no test counts as: the bets and the gate at the end.
GATES_OF_SHARES = 4  # 1 + e, rounded up.

Trial = Callable[[int], "bool | tuple[int, int]"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a sequential test; true if the claim holds.

    trials: trials done that had intervals.
    held: sum of the trials' shares of intervals that held the truth.
    """

    holds: bool
    trials: int
    held: float
    confidence: float
    margin: float

    def __bool__(self) -> bool:
        return self.holds


def holds(trial: Trial, confidence: float, *, trials: int, margin: float | None = None) -> Outcome:
    """Test the claim that intervals of a trial hold the truth with this confidence.

    Args:
      trial: runs the trial of this number, from 0. Returns whether its interval held the truth. A
        trial of several intervals, which may be dependent, returns how many held and their number.
        A trial without intervals is not counted.
      confidence: claimed confidence of every interval, in (0, 1).
      trials: the most trials to run.
      margin: the shortfall of the rival, in (0, confidence); None means the result of `noticed`.

    Returns:
      outcome: true if the claim holds. A true claim is refuted with probability (1 + e) RUN_ALARM
      at most.
    """
    margin = noticed(trials, confidence) if margin is None else margin
    claim_bet, rival_bet = stakes(confidence, margin)
    against_claim = against_rival = held = 0.0
    done, gates = 0, GATES
    for number in range(trials):
        found = trial(number)
        hits, answered = found if isinstance(found, tuple) else (int(found), 1)
        gates = GATES_OF_SHARES if isinstance(found, tuple) else gates
        if not answered:
            continue
        share = hits / answered
        done, held = done + 1, held + share
        against_claim += math.log1p(claim_bet * (confidence - share))
        against_rival += math.log1p(rival_bet * (share - confidence + margin))
        if max(against_claim + math.log(RUN_ALARM), against_rival + math.log(MISSED)) >= 0:
            break
    assert done, "no trial asked anything"
    EVALUATED.add(run=gates)
    if against_claim >= -math.log(RUN_ALARM):
        is_held = False
    elif against_rival >= -math.log(MISSED):
        is_held = True
    else:
        # The bound for shares is that of whole hits, rounded up; sums of shares are rounded.
        fewest = int(stats.binom.ppf(RUN_ALARM, done, confidence))
        is_held = math.ceil(held - 1e-9 * done) >= fewest
    return Outcome(is_held, done, held, confidence, margin)


def stakes(confidence: float, margin: float) -> tuple[float, float]:
    """Return the stakes against the claim and against the rival.

    Each trial multiplies a capital by 1 + stake * (mean - share), or by 1 + stake * (share - mean);
    mean is the opponent's claim. With shares of 0 and 1 only, these factors are the likelihood
    ratios of the two probabilities.
    """
    assert 0.0 < margin < confidence < 1.0, (confidence, margin)
    rival = confidence - margin
    return margin / (confidence * (1.0 - confidence)), margin / (rival * (1.0 - rival))


@cache
def noticed(trials: int, confidence: float) -> float:
    """Return the shortfall that the gate of so many trials misses with probability MISSED."""
    fewest = int(stats.binom.ppf(RUN_ALARM, trials, confidence))
    assert fewest >= 1, f"{trials} trials refute nothing at {confidence}"
    # Fewer than `fewest` hits have probability 1 - MISSED at this probability of a hit.
    return confidence - float(stats.beta.ppf(MISSED, fewest, trials - fewest + 1))
