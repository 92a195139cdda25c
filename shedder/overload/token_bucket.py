"""Token bucket: limits a rate, and lets a burst and one large batch pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    """Tokens that grow with time. A batch is let in while there are any, and may take more.

    What comes in t seconds is at most rate * t + burst and one batch.

    tokens: what may come now; rows, bytes or ns; below 0 after a large batch.
    at_s: time of the last refill; s of the caller's clock.
    """

    tokens: float = 0.0
    at_s: float = 0.0

    def refill(self, now_s: float, *, rate: float, burst: float) -> None:
        """Add the tokens of the time since the last refill.

        Args:
          now_s: time of a clock that never goes back. A time before the last refill, of a thread
            that came late to its turn, adds nothing.
          rate: tokens per second; over 0.
          burst: the most tokens that may wait.
        """
        grown = self.tokens + rate * max(now_s - self.at_s, 0.0)
        self.tokens, self.at_s = min(grown, burst), max(self.at_s, now_s)

    def wait_s(self, *, rate: float, wanted: float) -> float:
        """Return 0 if a batch may come, else the time until there are so many tokens."""
        return 0.0 if self.tokens > 0 else (wanted - self.tokens) / rate

    def take(self, tokens: float) -> None:
        """Take the tokens of a batch that comes."""
        self.tokens -= tokens

    def give_back(self, tokens: float) -> None:
        """Return the tokens of a batch that has not come after all."""
        self.tokens += tokens
