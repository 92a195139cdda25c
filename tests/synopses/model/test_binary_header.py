"""The envelope: whatever is damaged is refused, with the value that was found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from synopses.model.binary_header import Kind, seal, unseal
from synopses.model.errors import CorruptSynopsis, OtherLayout
from tests.laws import Part
from tests.synopses.subjects import LINEAR, LOSSY, NOT_YET_LOSSY
from tests.truth import draw

SUBJECTS = LINEAR + LOSSY + NOT_YET_LOSSY


def castagnoli(data: bytes) -> int:
    """CRC-32C bit by bit (RFC 3720: polynomial 0x1EDC6F41, reflected)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_checksum_of_the_standard_is_what_is_held_against() -> None:
    assert castagnoli(b"123456789") == 0xE3069283


@given(data=st.binary(max_size=100))
def test_the_last_bytes_are_the_castagnoli_crc_of_all_others(data: bytes) -> None:
    sealed = seal(Kind.COUNT, (3,), [data])
    assert int.from_bytes(sealed[-4:], "little") == castagnoli(sealed[:-4])
    assert unseal(sealed, Kind.COUNT).raw() == data


@pytest.mark.slow
@given(data=st.binary(max_size=100), wrong=st.integers(0, 2**32 - 1))
def test_any_other_checksum_is_refused_and_both_are_shown(data: bytes, wrong: int) -> None:
    sealed = seal(Kind.COUNT, (3,), [data])
    right = castagnoli(sealed[:-4])
    assume(wrong != right)
    with pytest.raises(CorruptSynopsis, match=f"is '{right:#010x}', expected '{wrong:#010x}'"):
        unseal(sealed[:-4] + wrong.to_bytes(4, "little"), Kind.COUNT)


def test_what_was_sealed_comes_out() -> None:
    data = seal(Kind.COUNT, (3,), [np.arange(3), b"xyz"], seed=7)
    body = unseal(data, Kind.COUNT)
    assert (body.parameters, body.seed) == ((3,), 7)
    assert body.array(np.int64, (3,)).tolist() == [0, 1, 2]
    assert body.raw() == b"xyz"
    body.end()


def test_another_kind_is_refused_by_name() -> None:
    with pytest.raises(CorruptSynopsis, match=r"kind is 1, expected '2 \(moments\)'"):
        unseal(seal(Kind.COUNT, (3,), []), Kind.MOMENTS)


def test_a_newer_layout_is_refused_and_told_from_damage() -> None:
    data = bytearray(seal(Kind.COUNT, (3,), []))
    data[4] = 9
    with pytest.raises(CorruptSynopsis, match="checksum"):
        unseal(bytes(data), Kind.COUNT)
    data[-4:] = castagnoli(bytes(data[:-4])).to_bytes(4, "little")
    with pytest.raises(OtherLayout, match="layout of count is 9, expected 1"):
        unseal(bytes(data), Kind.COUNT)


def test_parameters_of_another_length_are_refused() -> None:
    data = bytearray(seal(Kind.COUNT, (3,), []))
    data[5] = Kind.MOMENTS  # Whose parameters are two flags longer.
    data[-4:] = castagnoli(bytes(data[:-4])).to_bytes(4, "little")
    with pytest.raises(CorruptSynopsis, match="parameter length is 8, expected 10"):
        unseal(bytes(data), Kind.MOMENTS)


def test_parts_that_were_not_read_are_noticed() -> None:
    body = unseal(seal(Kind.COUNT, (3,), [b"left"]), Kind.COUNT)
    with pytest.raises(CorruptSynopsis, match="bytes after the last part is 12"):
        body.end()


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_truncated_summary_is_refused(subject) -> None:
    data = subject.of(Part(None, draw("normal", 1, 20)), 1).to_bytes()
    kind = type(subject.empty(1))
    for size in range(0, len(data), max(1, len(data) // 50)):
        with pytest.raises(CorruptSynopsis):
            kind.from_bytes(data[:size])


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_every_flipped_bit_is_noticed(subject) -> None:
    data = subject.of(Part(None, draw("normal", 1, 20)), 1).to_bytes()
    kind = type(subject.empty(1))
    for at in np.random.default_rng(1).integers(0, 8 * len(data), 50).tolist():
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptSynopsis):
            kind.from_bytes(bytes(damaged))


@settings(max_examples=50)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    for subject in SUBJECTS:
        with pytest.raises(CorruptSynopsis):
            type(subject.empty(1)).from_bytes(data)
