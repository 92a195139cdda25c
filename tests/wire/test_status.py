"""Errors arrive as what they were raised as."""

from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2

from shedder import errors
from shedder.errors import ShedderError
from shedder.wire.status import (
    CODES,
    STATUS_KEY,
    code_of,
    from_call,
    from_status,
    retry_after_ms,
    to_abort,
    to_status,
)

SERVER_SIDE = [
    error
    for error in ShedderError.by_reason.values()
    if error is not errors.Unreachable and error.__module__ == "shedder.errors"
]


@pytest.mark.parametrize("error", SERVER_SIDE, ids=lambda error: error.__name__)
def test_every_error_arrives_as_the_class_it_was_raised_as(error):
    sent = error.from_message("what happened: 3 of 5")
    code, details, metadata = to_abort(sent)
    got = from_call(code, details, metadata, "here")
    assert type(got) is error
    assert str(got) == "what happened: 3 of 5"


@pytest.mark.parametrize("error", SERVER_SIDE, ids=lambda error: error.__name__)
def test_every_error_has_exactly_one_family_in_the_table(error):
    families = [ancestor for ancestor in error.__mro__ if ancestor in CODES]
    assert len(families) == 1
    assert code_of(error) is CODES[families[0]]


def test_no_two_families_share_a_code():
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("error", [errors.Overloaded, errors.RateExceeded])
def test_a_retry_time_travels(error):
    sent = error("full", retry_after_ms=1234)
    got = from_status(to_status(sent))
    assert type(got) is error
    assert str(got) == "full"
    assert retry_after_ms(got) == 1234
    details = to_status(sent).details
    assert [d.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for d in details] == [False, True]


def test_what_does_not_get_better_has_no_retry_time():
    assert retry_after_ms(errors.StorageFailed("fsync")) is None
    assert retry_after_ms(errors.BatchTooLarge("17 MiB")) is None
    assert len(to_status(errors.BadQuery("x")).details) == 1


def test_a_reason_that_this_client_does_not_know_is_its_family():
    status = to_status(errors.BadQuery("new"))
    status.details[0].Pack(error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain="shedder"))
    assert type(from_status(status)) is errors.InvalidRequest


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unreachable),
        (grpc.StatusCode.CANCELLED, errors.Unreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ResourceExhausted),
        (grpc.StatusCode.UNIMPLEMENTED, errors.Unimplemented),
        (grpc.StatusCode.UNKNOWN, errors.InternalError),
        (grpc.StatusCode.ABORTED, errors.InternalError),
    ],
)
@pytest.mark.parametrize("metadata", [None, (), ((STATUS_KEY, b"\xff\xff junk"),)])
def test_what_grpc_says_itself_becomes_one_of_our_errors(code, error, metadata):
    got = from_call(code, "failed to connect", metadata, "far:7077")
    assert type(got) is error


def test_a_long_message_fits_the_metadata_of_a_response():
    _code, details, metadata = to_abort(errors.BadQuery("é" * 100_000))
    assert len(details.encode()) * 3 + len(metadata[0][1]) * 4 / 3 < 8_000


def test_the_page_about_the_wire_lists_every_reason_under_its_status():
    page = (Path(__file__).resolve().parents[2] / "docs" / "grpc.md").read_text()
    for code in CODES.values():
        reasons = sorted(error.reason for error in SERVER_SIDE if code_of(error) is code)
        assert f"| {code.name} | {', '.join(reasons)} |\n" in page
