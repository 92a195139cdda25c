"""Default log configuration of the library."""

from __future__ import annotations

import logging
import sys

import structlog


def be_quiet() -> None:
    """A library talks on stderr, and only of what went wrong, unless its host says otherwise."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=_to_stderr,
        )


def _to_stderr(*_: object) -> structlog.WriteLogger:
    """Return a logger of the present stderr; a host may replace and close what stderr was."""
    return structlog.WriteLogger(sys.stderr)
