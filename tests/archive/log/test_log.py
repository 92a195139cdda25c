"""The log: what goes in comes out, whatever happens to the end of the file."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shedder.archive.log.log import MARK, Log
from shedder.archive.log.log_segment import SEGMENT_HEAD_BYTES
from shedder.errors import BatchTooLarge, NewerFormat, StorageFailed
from tests.archive.power import PowerFiles


def payloads(log: Log, from_sequence: int = 0) -> list[tuple[int, int, bytes, bytes]]:
    return [
        (record.sequence, record.kind, record.header, record.body.to_pybytes())
        for record in log.read(from_sequence)
        if record.kind != MARK
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    records=st.lists(
        st.tuples(st.integers(1, 255), st.binary(max_size=40), st.lists(st.binary(max_size=90))),
        max_size=12,
    ),
    segment_bytes=st.sampled_from([128, 300, 1 << 20]),
)
def test_what_was_appended_is_read_back_in_order(tmp_path_factory, records, segment_bytes):
    directory = tmp_path_factory.mktemp("log")
    log = Log.open(directory, segment_bytes=segment_bytes)
    sequences = [log.append(kind, [header, *body]) for kind, header, body in records]
    log.close()
    again = Log.open(directory, segment_bytes=segment_bytes)
    expected = [(n, k, h, b"".join(b)) for n, (k, h, b) in zip(sequences, records, strict=True)]
    assert sequences == list(range(len(records)))
    assert payloads(again) == expected
    assert payloads(again, len(records) // 2) == expected[len(records) // 2 :]
    assert again.recovery.torn_bytes == 0
    assert again.recovery.damages == ()
    again.close()


def test_sequences_go_on_after_reopening(tmp_path):
    log = Log.open(tmp_path)
    assert log.append(1, [b"a"]) == 0
    log.close()  # the mark takes sequence 1
    log = Log.open(tmp_path)
    assert log.append(1, [b"b"]) == 2
    log.close()


def test_an_empty_log_begins_where_the_checkpoint_ended(tmp_path):
    log = Log.open(tmp_path, at_least=7)
    assert log.append(1, [b"a"]) == 7
    log.close()


def test_a_log_that_ends_before_the_checkpoint_reports_what_is_lost(tmp_path):
    log = Log.open(tmp_path)
    log.append(1, [b"a"])
    log.sync()
    log = Log.open(tmp_path, at_least=9)
    (lost,) = log.recovery.damages
    assert (lost.first_sequence, lost.end_sequence) == (1, 9)
    assert log.append(1, [b"b"]) == 9
    assert [item[0] for item in payloads(log)] == [0, 9]
    log.close()


def quickly(directory: Path) -> Log:
    """Open without waiting for a real disk."""
    return Log.open(directory, files=PowerFiles(directory))


def small_log(directory: Path) -> tuple[Path, list[int]]:
    """Three records synced one by one, not closed; returns the file and the records' ends."""
    log = Log.open(directory)
    ends = [SEGMENT_HEAD_BYTES]
    for body in (b"first", b"second record", b"third"):
        log.append(1, [b"h", body])
        log.sync()
        ends.append(log.size_bytes)
    (path,) = directory.glob("*.log")
    return path, ends


def test_a_log_cut_at_any_byte_keeps_the_whole_records_before_the_cut(tmp_path):
    original, ends = small_log(tmp_path / "original")
    data = original.read_bytes()
    for size in range(len(data)):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / original.name).write_bytes(data[:size])
        log = quickly(directory)
        kept = sum(end <= size for end in ends[1:])
        assert [item[0] for item in payloads(log)] == list(range(kept)), size
        assert log.recovery.damages == (), size
        assert log.append(1, [b"next"]) == kept
        log.sync()
        again = quickly(directory)
        assert len(payloads(again)) == kept + 1
        assert again.recovery.torn_bytes == 0
        log.close()
        again.close()


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff" * 100, b"SHR1" * 50, b"x"])
def test_garbage_after_the_last_record_is_cut_off(tmp_path, tail):
    path, ends = small_log(tmp_path)
    with path.open("ab") as file:
        file.write(tail)
    log = Log.open(tmp_path)
    assert len(payloads(log)) == 3
    assert log.recovery.torn_bytes == len(tail)
    assert path.stat().st_size == ends[-1]
    log.close()


def test_a_flipped_bit_anywhere_never_changes_what_is_read(tmp_path):
    original, ends = small_log(tmp_path / "original")
    data = original.read_bytes()
    truth = [(0, 1, b"h", b"first"), (1, 1, b"h", b"second record"), (2, 1, b"h", b"third")]
    for offset in range(len(data)):
        directory = tmp_path / str(offset)
        directory.mkdir()
        rotten = bytearray(data)
        rotten[offset] ^= 1 << (offset % 8)
        (directory / original.name).write_bytes(rotten)
        log = quickly(directory)
        hit = sum(end <= offset for end in ends) - 1  # which record; -1: the segment's head
        if hit == -1:  # the other copy of the head is good
            assert payloads(log) == truth
        elif hit < 2:  # a later record proves that this one was durable
            assert payloads(log) == truth[:hit] + truth[hit + 1 :], offset
            (damage,) = log.recovery.damages
            assert (damage.first_sequence, damage.end_sequence) == (hit, hit + 1)
            assert damage.offset <= offset < damage.offset + damage.length
            (copy,) = log.recovery.quarantined
            assert copy.read_bytes() == rotten[damage.offset : damage.offset + damage.length]
            assert (directory / original.name).read_bytes() == rotten
        else:  # nothing proves it: a torn tail
            assert payloads(log) == truth[:2]
            assert log.recovery.torn_bytes == ends[3] - ends[2]
        log.close()


def test_damage_in_the_last_record_is_told_from_a_torn_tail_after_an_orderly_close(tmp_path):
    log = Log.open(tmp_path)
    log.append(1, [b"h", b"body"])
    log.close()
    (path,) = tmp_path.glob("*.log")
    rotten = bytearray(path.read_bytes())
    rotten[SEGMENT_HEAD_BYTES + 34] ^= 1
    path.write_bytes(rotten)
    log = Log.open(tmp_path)
    (damage,) = log.recovery.damages
    assert (damage.first_sequence, damage.end_sequence) == (0, 1)
    assert log.recovery.torn_bytes == 0
    log.close()


def test_records_that_no_fsync_covered_are_cut_with_the_hole_before_them(tmp_path):
    """A group of three was being written when power failed: its second record never got there."""
    log = Log.open(tmp_path)
    log.append(1, [b"durable"])
    log.sync()
    sizes = []
    for body in (b"one", b"two", b"three"):
        sizes.append(log.size_bytes)
        log.append(1, [b"h", body])
    (path,) = tmp_path.glob("*.log")
    data = bytearray(path.read_bytes())
    data[sizes[1] : sizes[2]] = bytes(sizes[2] - sizes[1])
    path.write_bytes(data)
    again = Log.open(tmp_path)
    assert [item[0] for item in payloads(again)] == [0, 1]
    assert again.recovery.damages == ()
    assert again.recovery.torn_bytes == len(data) - sizes[1]
    (copy,) = again.recovery.quarantined
    assert copy.read_bytes() == data[sizes[1] :]
    again.close()


def test_bytes_of_a_producer_cannot_pass_for_a_record(tmp_path):
    log = Log.open(tmp_path / "a")
    log.append(1, [b"", b"forged"])
    log.append(1, [b"", b"forged"])
    (other,) = (tmp_path / "a").glob("*.log")
    forged = other.read_bytes()[SEGMENT_HEAD_BYTES:]  # valid records, of another segment
    log = Log.open(tmp_path / "b")
    log.append(1, [b"12345678", forged])
    log.sync()
    log.append(1, [b"", b"last"])
    log.sync()
    (path,) = (tmp_path / "b").glob("*.log")
    data = bytearray(path.read_bytes())
    data[SEGMENT_HEAD_BYTES + 4] ^= 1  # the head, so that the reader has to search
    path.write_bytes(data)
    again = Log.open(tmp_path / "b")
    assert [item[3] for item in payloads(again)] == [b"last"]
    again.close()


def test_a_segment_whose_head_is_lost_goes_to_quarantine_and_no_sequence_comes_twice(tmp_path):
    log = Log.open(tmp_path, segment_bytes=200)
    for number in range(8):
        log.append(1, [b"h", bytes([number]) * 50])
    log.close()
    paths = sorted(tmp_path.glob("*.log"))
    data = bytearray(paths[-1].read_bytes())
    data[20], data[50] = data[20] ^ 1, data[50] ^ 1  # both copies
    paths[-1].write_bytes(data)
    again = Log.open(tmp_path)
    assert again.recovery.lost_segments == (paths[-1],)
    assert (tmp_path / "quarantine" / paths[-1].name).read_bytes() == data
    assert again.append(1, [b"h"]) > 8
    again.close()


@pytest.mark.parametrize(("offset", "first"), [(0, 2), (64, 2), (64 + 88, 3)])
def test_the_next_segment_says_where_damage_at_the_end_of_one_ends(tmp_path, offset, first):
    filled(tmp_path).close()  # Two records of 88 bytes each, behind the head.
    path = sorted(tmp_path.glob("*.log"))[1]
    data = path.read_bytes()
    path.write_bytes(data[:offset] + bytes(len(data) - offset))
    damages = Log.open(tmp_path).recovery.damages
    assert {(damage.first_sequence, damage.end_sequence) for damage in damages} == {(first, 4)}


def test_old_segments_are_dropped_whole(tmp_path):
    log = Log.open(tmp_path, segment_bytes=200)
    for number in range(10):
        log.append(1, [b"h", bytes([number]) * 50])
    log.sync()
    before = log.size_bytes
    freed = log.drop_before(5)
    assert freed == before - log.size_bytes > 0
    assert log.first_sequence <= 5
    assert [item[0] for item in payloads(log, 5)] == [5, 6, 7, 8, 9]
    log.drop_before(1000)
    assert log.append(1, [b"h"]) == 10
    log.close()


def test_a_record_larger_than_a_segment_has_one_to_itself(tmp_path):
    log = Log.open(tmp_path, segment_bytes=128)
    for size in (10, 5000, 10):
        log.append(1, [b"h", bytes(size)])
    assert [len(item[3]) for item in payloads(log)] == [10, 5000, 10]
    assert len(list(tmp_path.glob("*.log"))) == 3
    log.close()


def test_a_header_over_the_limit_is_refused(tmp_path):
    log = Log.open(tmp_path)
    with pytest.raises(BatchTooLarge, match="70000"):
        log.append(1, [bytes(70_000)])
    assert log.append(1, [b"h"]) == 0
    log.close()


def test_a_newer_log_is_refused(tmp_path):
    import google_crc32c

    path, _ = small_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[28:32] = google_crc32c.value(bytes(data[:28])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(NewerFormat, match="log format 2"):
        Log.open(tmp_path)


def test_a_closed_log_takes_nothing(tmp_path):
    log = Log.open(tmp_path)
    log.close()
    with pytest.raises(StorageFailed, match="closed"):
        log.append(1, [b"h"])


def filled(directory: Path, records: int = 10) -> Log:
    """A log in segments of two records each, all durable."""
    log = Log.open(directory, segment_bytes=250)
    for number in range(records):
        log.append(1, [b"h", bytes([number]) * 50])
    log.sync()
    return log


def files_of(directory: Path) -> dict[int, str]:
    """Names by the number that the file system gives a file, whatever it is called."""
    return {path.stat().st_ino: path.name for path in directory.iterdir() if path.is_file()}


def test_new_segments_are_written_over_dropped_ones(tmp_path):
    log = filled(tmp_path)
    before = files_of(tmp_path)
    log.drop_before(8)
    assert sum(name.endswith(".spare") for name in files_of(tmp_path).values()) == len(before) - 1
    for number in range(10, 14):
        log.append(1, [b"h", bytes([number]) * 50])
    log.sync()
    assert set(files_of(tmp_path)) == set(before)
    assert [item[0] for item in payloads(log)] == list(range(8, 14))
    log.close()


@pytest.mark.parametrize("records", [1, 2])
def test_what_an_older_segment_left_behind_the_last_record_is_not_read(tmp_path, records):
    log = filled(tmp_path)
    log.drop_before(8)
    for number in range(10, 10 + records):
        log.append(1, [b"h", bytes([number]) * 30])
        log.sync()
    on_disk = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert on_disk > log.size_bytes  # So there is something to be mistaken for records.
    again = Log.open(tmp_path)  # as after a kill
    assert [item[0] for item in payloads(again)] == list(range(8, 10 + records))
    assert again.recovery.damages == ()
    assert again.recovery.torn_bytes == 0
    assert again.recovery.quarantined == ()
    assert not list(tmp_path.glob("*.spare"))
    again.append(1, [b"h"])
    again.close()
    log.close()


def test_an_orderly_close_leaves_nothing_of_an_older_segment(tmp_path):
    log = filled(tmp_path)
    log.drop_before(8)
    log.append(1, [b"h", b"x"])
    log.close()
    paths = sorted(tmp_path.glob("*.log"))
    assert sum(path.stat().st_size for path in paths) == log.size_bytes


def test_a_segment_that_somebody_reads_is_not_written_over(tmp_path):
    log = filled(tmp_path)
    reader = log.read()
    seen = [next(reader).sequence]
    log.drop_before(8)
    assert not list(tmp_path.glob("*.spare"))
    for number in range(10, 14):
        log.append(1, [b"h", bytes([number]) * 50])
    seen += [record.sequence for record in reader]
    assert set(seen) >= {0, 1, 8, 9}
    log.drop_before(12)
    assert list(tmp_path.glob("*.spare"))
    log.close()


def test_a_log_that_does_not_grow_gives_its_spare_files_back(tmp_path):
    log = filled(tmp_path)
    log.drop_before(8)
    spares = len(list(tmp_path.glob("*.spare")))
    assert spares > 1
    for left in reversed(range(spares)):
        log.drop_before(8)
        assert len(list(tmp_path.glob("*.spare"))) == left
    log.drop_before(8)
    log.close()


def test_a_segment_with_a_second_name_is_not_written_over(tmp_path):
    log = filled(tmp_path)
    first = tmp_path / f"{0:020d}.log"
    (tmp_path / "backup").mkdir()
    linked = tmp_path / "backup" / first.name
    linked.hardlink_to(first)
    before = linked.read_bytes()
    log.drop_before(8)
    for number in range(10, 24):
        log.append(1, [b"h", bytes([number]) * 50])
    assert linked.read_bytes() == before
    assert linked.stat().st_nlink == 1
    log.close()
