"""What the library logs by itself goes to the stderr of the moment."""

from __future__ import annotations

import contextlib
import io
import sys

import structlog

from shedder.logging_defaults import be_quiet


def test_a_stderr_that_was_replaced_and_closed_ends_no_call():
    """A notebook and pytest replace stderr; a warning to a closed file raised ValueError."""
    structlog.reset_defaults()
    try:
        with contextlib.redirect_stderr(io.StringIO()) as first:
            be_quiet()
            structlog.get_logger("shedder.archive").warning("first")
            assert "first" in first.getvalue()
            first.close()
        with contextlib.redirect_stderr(io.StringIO()) as second:
            structlog.get_logger("shedder.archive").warning("second")
            structlog.get_logger("shedder.archive").info("of no matter")
        assert "second" in second.getvalue()
        assert "of no matter" not in second.getvalue()
    finally:
        structlog.reset_defaults()


def test_a_traceback_shows_no_values_of_tuples():
    """The default renderer printed all local variables of each frame, with rows of the user."""
    structlog.reset_defaults()
    try:
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            be_quiet()
            secret = "4111" + "1111"
            try:
                raise ValueError(len(secret))
            except ValueError as error:
                structlog.get_logger("shedder.engine").error("query_failed", exc_info=error)
        assert "ValueError: 8" in stderr.getvalue()
        assert secret not in stderr.getvalue()
    finally:
        structlog.reset_defaults()


def test_a_process_without_stderr_logs_nothing(monkeypatch):
    """Python has None for a stderr that was closed when the process began: `2>&-`."""
    structlog.reset_defaults()
    monkeypatch.setattr(sys, "stderr", None)
    try:
        be_quiet()
        logger = structlog.get_logger("shedder.archive")
        assert logger.warning("first") is None
    finally:
        structlog.reset_defaults()
