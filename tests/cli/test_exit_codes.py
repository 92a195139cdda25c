"""Every error has an exit code that says what kind of trouble it is."""

from __future__ import annotations

import pytest

from shedder import errors
from shedder.cli.exit_codes import ExitCode, exit_code

FAMILIES = {
    errors.BadQuery: ExitCode.USAGE,
    errors.UnknownStream: ExitCode.USAGE,
    errors.StreamExists: ExitCode.USAGE,
    errors.DirectoryLocked: ExitCode.USAGE,
    errors.BeforeRetention: ExitCode.USAGE,
    errors.Unimplemented: ExitCode.USAGE,
    errors.Unreachable: ExitCode.UNREACHABLE,
    errors.Draining: ExitCode.UNREACHABLE,
    errors.Overloaded: ExitCode.UNREACHABLE,
    errors.DeadlineExceeded: ExitCode.UNREACHABLE,
    errors.Unauthenticated: ExitCode.IDENTITY,
    errors.PermissionDenied: ExitCode.IDENTITY,
    errors.CorruptData: ExitCode.DAMAGED,
    errors.PrecisionUnavailable: ExitCode.PRECISION,
    errors.InternalError: ExitCode.INTERNAL,
}


@pytest.mark.parametrize(("error", "code"), FAMILIES.items())
def test_an_error_family_has_its_exit_code(error, code):
    assert exit_code(error.from_message("…")) is code


def test_only_bugs_end_as_internal():
    internal = {
        error
        for error in errors.ShedderError.by_reason.values()
        if exit_code(error.from_message("…")) is ExitCode.INTERNAL
    }
    assert internal == {errors.InternalError}
