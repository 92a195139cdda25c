"""Resizing while live: a summary's size, by its parameter and by its bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Self

from synopses.model.errors import BadParameter
from synopses.model.profile import Profile, Statistics

FULL: Final = Statistics(tuples=1 << 40, decades=2 * 617)
"""Groups that hold all that they ever can: of doubles all 617 decades, of both signs."""


class Resizable(ABC):
    """A summary whose memory can be changed while it counts: STREAM's changeMem.

    A size has two names. The parameter that the profile calls by `size` is what `resize`,
    `profile.bytes_of`, `error_of` and `for_error` take; bytes are what `resize_to`,
    `profile.size_within` and `error_at` take. Both name the same sizes of the same curve.
    Source: Motwani et al. 2003, "Query processing, resource management, and approximation in a
    data stream management system" (CIDR).
    """

    profile: ClassVar[Profile]
    __slots__ = ()

    @property
    @abstractmethod
    def groups(self) -> int:
        """Return how many groups there are."""

    @abstractmethod
    def resize(self, size: int, /) -> Any:
        """Take another value of the parameter that sets the memory, in place."""

    @property
    def size(self) -> int:
        """The parameter that sets the memory, as in `profile.sizes`."""
        return int(getattr(self, self.profile.size))

    def resize_to(self, size_bytes: int, statistics: Statistics = FULL) -> Any:
        """Take the largest size that holds no more than these bytes, in place.

        It is found by the profile: all groups that there are have room to become full. While
        arrays grow, by doubling, up to twice as much may be allocated (`size_bytes` tells). What
        was forgotten does not come back, so most kinds stay as they are where more would fit.

        Args:
          size_bytes: of all groups together.
          statistics: of a group, where it is known that not all of it will be needed.

        Returns:
          What `resize` returns.

        Raises:
          BadParameter: the smallest size holds more.
        """
        copies = max(1, self.groups)
        try:
            size = self.profile.size_within(size_bytes // copies, statistics)
        except BadParameter:
            least = copies * self.profile.bytes_of(self.profile.sizes[0], statistics)
            raise BadParameter("size_bytes", size_bytes, f">= {least}") from None
        return self.resize(size if self.profile.grows else min(size, self.size))

    def _become(self, other: Self) -> Self:
        """Take over all that another summary holds."""
        name: str
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
        return self


class ResizableSample(Resizable):
    """A sample of all tuples: one size, whatever the groups."""

    __slots__ = ()

    @property
    def groups(self) -> int:
        """All tuples are one group."""
        return 1

    def resize_to(self, size_bytes: int, statistics: Statistics = FULL) -> Any:
        """Take the largest size that holds no more than these bytes, in place.

        Returns:
          What `resize` returns: which rows stay.

        Raises:
          BadParameter: the smallest size holds more.
        """
        return self.resize(self.profile.size_within(size_bytes, statistics))
