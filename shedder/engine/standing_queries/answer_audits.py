"""Audits of a standing query's answers: their results, and the turns of queries."""

from __future__ import annotations

import math

from shedder.queries.certification.certification import Certification

AuditedAnswer = tuple[int | None, int | None, int]
"""Start and end of the window, in microseconds, and the position of an answer."""


class AnswerAudits:
    """State of the audits of one query. Used by the apply thread.

    certification: result of all audits so far.
    audited: the answer that was audited last; None: there is none.
    audited_s: time when an audit last looked at the query; monotonic; -inf: never.
    bet_to_us: audits have bet on tuples before this event time; None: on none.
    reserved_to_s: until then one audit has the query, and other audits pass it over; monotonic.
    """

    def __init__(self) -> None:
        self.certification = Certification()
        self.audited: AuditedAnswer | None = None
        self.audited_s = -math.inf
        self.bet_to_us: int | None = None
        self.reserved_to_s = -math.inf

    def restore(
        self, certification: Certification, audited: AuditedAnswer | None, bet_to_us: int | None
    ) -> None:
        """Go on from the state in a checkpoint."""
        self.certification, self.audited, self.bet_to_us = certification, audited, bet_to_us

    def certify(self, certification: Certification) -> None:
        """Replace the result of all audits."""
        self.certification = certification

    def note_look(self, now_s: float) -> None:
        """Note when an audit looked at the query; queries with earlier looks come first."""
        self.audited_s = now_s

    def reserve(self, until_s: float) -> None:
        """Make other audits pass the query over until then."""
        self.reserved_to_s = until_s

    def release(self) -> None:
        """End the reservation."""
        self.reserved_to_s = -math.inf

    def note_audited(self, answer: AuditedAnswer | None) -> None:
        """Note which answer was audited last."""
        self.audited = answer

    def note_bet(self, before_us: int) -> None:
        """Note that audits have bet on tuples before this event time."""
        self.bet_to_us = before_us
