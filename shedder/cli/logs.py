"""The log of a server: JSON lines, or colours where a person is looking."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from shedder.queries.answers.control_characters import escaped_lines
from shedder.settings import Settings

_PLAIN = ("event", "exception", "stack")  # Keys whose text ConsoleRenderer writes as it is.


def _without_controls(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escape control characters where structlog writes text as it is; other values are repr."""
    return {
        name: escaped_lines(value) if name in _PLAIN and isinstance(value, str) else value
        for name, value in event.items()
    }


def log_to_stderr(settings: Settings) -> None:
    """Send structlog's lines to stderr, in the format and from the level of the settings."""
    people = settings.log_format == "console" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    renderers: list[Processor] = (
        [_without_controls, structlog.dev.ConsoleRenderer()]
        if people
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
