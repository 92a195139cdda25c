"""A directory is served by one process, whatever happens to its file LOCK."""

import os
import subprocess
import sys

import pytest

from shedder.archive.files.data_directory import DirectoryLock, servers_excluded
from shedder.errors import DirectoryLocked, StorageFailed

OPENS = (
    "import sys; from pathlib import Path\n"
    "from shedder.archive.files.data_directory import DirectoryLock\n"
    "from shedder.errors import DirectoryLocked\n"
    "try:\n    DirectoryLock.take(Path(sys.argv[1]))\n"
    "except DirectoryLocked as error:\n    print(error)\n"
)


@pytest.fixture
def lock(tmp_path):
    lock = DirectoryLock.take(tmp_path)
    yield lock
    lock.release()


def removed(path):
    path.unlink()


def replaced(path):
    path.rename(path.with_name("OLD"))
    path.write_text("4194304\n")


def emptied(path):
    path.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize("harm", [removed, replaced, emptied])
def test_a_second_process_is_refused_and_told_the_first_one(tmp_path, lock, harm):
    harm(tmp_path / "LOCK")
    done = subprocess.run(
        [sys.executable, "-c", OPENS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert f"is served by process {os.getpid()}" in done.stdout
    with pytest.raises(DirectoryLocked, match=str(os.getpid())), servers_excluded(tmp_path):
        pass


def test_checks_exclude_servers_and_not_each_other(tmp_path):
    DirectoryLock.take(tmp_path).release()
    (tmp_path / "LOCK").unlink()
    with servers_excluded(tmp_path), servers_excluded(tmp_path), pytest.raises(DirectoryLocked):
        DirectoryLock.take(tmp_path)
    assert list(tmp_path.iterdir()) == []
    DirectoryLock.take(tmp_path).release()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "LOCK").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(StorageFailed, match="LOCK"):
        DirectoryLock.take(tmp_path / "data")
    assert (tmp_path / "thesis.tex").read_text() == "important"


@pytest.mark.parametrize("held", ["important", "12 monkeys\n", "1" * 40])
def test_a_lock_file_with_other_content_is_locked_and_not_written_to(tmp_path, held):
    (tmp_path / "LOCK").write_text(held)
    lock = DirectoryLock.take(tmp_path)
    with pytest.raises(DirectoryLocked, match=str(os.getpid())):
        DirectoryLock.take(tmp_path)
    lock.release()
    assert (tmp_path / "LOCK").read_text() == held


def test_a_second_name_of_a_file_is_not_written_to(tmp_path):
    (tmp_path / "numbers").write_text("12345\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "LOCK").hardlink_to(tmp_path / "numbers")
    DirectoryLock.take(tmp_path / "data").release()
    assert (tmp_path / "numbers").read_text() == "12345\n"
