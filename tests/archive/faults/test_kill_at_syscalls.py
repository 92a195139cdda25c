"""A kill at any system call of run commit, vacuum and retention leaves a whole directory."""

import pytest

from shedder.archive.operations.verify import check
from tests.archive.children import write_and_retain
from tests.archive.power import moments
from tests.archive.syscalls import needs_strace, run
from tests.archive.worlds import positions, recover
from tests.scale import scaled


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("/rename.*", 2),
        ("/unlink.*", 3),
        ("fsync", 4),
        ("fdatasync", 11),
        ("pwrite64", 43),
        ("/pwritev.*", 13),
    ],
)
def test_a_kill_in_run_commit_vacuum_or_compartment_drop_loses_nothing(tmp_path, call, step):
    kills = 0
    for index in moments(step, f"kill at {call}", first=1):
        directory = tmp_path / f"{index}"
        directory.mkdir()
        output, killed = run(directory, call, "signal=KILL", index, write_and_retain)
        acknowledged = max((int(word) for word in output if word.isdigit()), default=0)
        if killed and not (directory / "FORMAT").exists():
            assert not output
        else:
            report = check(directory)
            assert report.damages == []
            store = recover(directory)
            if store.streams():
                end = store.end_position(1)
                assert acknowledged <= end <= acknowledged + 20
                found = positions(store)
                assert found == list(range(found[0] if found else end, end))
                assert not found or found[0] in (0, 60)
                assert "retained" not in output or found[0] == 60
                kept = {run.file for run in store.runs(1)} | {
                    copy.file for run in store.runs(1) for copy in run.copies
                }
                assert {f"1/{p.name}" for p in (directory / "runs" / "1").glob("*")} == kept
            store.close()
            assert check(directory).notes == []
        if not killed:
            break
        kills += 1
    assert kills >= scaled(1, 2)
