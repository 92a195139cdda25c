"""What a library says by itself."""

from __future__ import annotations

import logging
import sys

import structlog


def be_quiet() -> None:
    """A library talks on stderr, and only of what went wrong, unless its host says otherwise."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        )
