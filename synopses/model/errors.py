"""Errors of synopses, named for what happened."""

from __future__ import annotations


class SynopsisError(Exception):
    """The root of all errors that summaries raise on purpose."""


class CannotMerge(SynopsisError):
    """The two synopses were built with different parameters."""

    def __init__(self, parameter: str, left: object, right: object) -> None:
        super().__init__(
            f"cannot merge: {parameter} is {left!r} on the left, {right!r} on the right"
        )


class CannotSubtract(SynopsisError):
    """What is to be taken out was never put in."""

    def __init__(self, what: str, left: int) -> None:
        super().__init__(f"cannot subtract: {what} would be {left}")


class CorruptSynopsis(SynopsisError):
    """The bytes are not what `to_bytes` wrote."""

    def __init__(self, what: str, found: object, expected: object) -> None:
        super().__init__(f"corrupt synopsis: {what} is {found!r}, expected {expected!r}")


class OtherLayout(CorruptSynopsis):
    """The bytes are whole, but another version wrote them in a layout that is not read here."""


class BadParameter(SynopsisError):
    """A parameter is outside what the summary can be built or asked with."""

    def __init__(self, parameter: str, value: object, expected: str) -> None:
        self.parameter, self.value, self.expected = parameter, value, expected
        super().__init__(f"{parameter} is {value!r}, expected {expected}")
