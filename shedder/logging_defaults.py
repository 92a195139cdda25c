"""Default log configuration of the library."""

from __future__ import annotations

import io
import logging
import sys

import structlog


def be_quiet() -> None:
    """A library talks on stderr, and only of what went wrong, unless its host says otherwise.

    A traceback has no values of local variables: they can be tuples of a stream.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=True),
                structlog.processors.format_exc_info,
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr is not None and sys.stderr.isatty()
                ),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=_to_stderr,
        )


def _to_stderr(*_: object) -> structlog.WriteLogger:
    """Return a logger of the present stderr; a host may replace and close what stderr was.

    A process that was started with a closed stderr has none: what it logs is left out.
    """
    return structlog.WriteLogger(io.StringIO() if sys.stderr is None else sys.stderr)
