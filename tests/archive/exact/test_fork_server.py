"""The process that forks those of exact answers: its users, and the ends of its processes."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

from shedder.archive.exact.client import ExactWorker
from shedder.archive.exact.fork_server import KILLED
from shedder.archive.exact.worker import ResultLimits, WorkerLimits
from shedder.archive.exact.worker_process import SharedForkServer, WorkerProcess
from shedder.errors import InternalError, ResourcesShort
from tests.archive.child_processes import children, exact_worker_processes

LIMITS = WorkerLimits(64 << 20, 1, "/nowhere", 1 << 20, 1 << 20)


@pytest.fixture
def shared():
    shared, user = SharedForkServer(), object()
    shared.add(user)
    yield shared
    shared.remove(user)


def ended(process: WorkerProcess) -> str:
    process.wait()
    return process.end


def server_of(worker: int) -> int:
    [parent] = [pid for pid in children(os.getpid()) if worker in children(pid)]
    return parent


def test_each_process_ends_by_itself_and_the_others_go_on(shared):
    one, two, three = (shared.start(LIMITS) for _ in range(3))
    one.kill()
    assert ended(one) == KILLED
    two.stdin.close()
    assert ended(two) == "ended with status 0"
    assert three.is_running
    assert not one.is_running
    one.kill()  # It has ended: nothing happens.
    assert three.is_running
    three.kill()
    assert ended(three) == KILLED


def test_the_database_that_processes_inherit_has_no_threads(shared):
    """A fork copies none. The thread of jemalloc has handlers that make it safe to fork."""
    before = set(children(os.getpid()))
    process = shared.start(LIMITS)
    [server] = set(children(os.getpid())) - before
    process.stdin.close()
    assert ended(process) == "ended with status 0"  # So the server has loaded everything.
    threads = [path for path in Path(f"/proc/{server}/task").iterdir() if path.name != str(server)]
    assert {(path / "comm").read_text().strip() for path in threads} <= {"jemalloc_bg_thd"}


def test_processes_are_started_and_killed_by_several_threads(shared):
    ends = []

    def start_and_kill() -> None:
        for _ in range(5):
            process = shared.start(LIMITS)
            process.kill()
            ends.append(ended(process))

    threads = [threading.Thread(target=start_and_kill) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [KILLED] * 20


@pytest.fixture
def many_descriptors():
    """Open so many descriptors that the next one is above 1,024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, limits[1]), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] <= 1_024:
        opened.append(os.dup(opened[0]))
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_server_serves_a_process_with_many_open_descriptors(many_descriptors, shared):
    process = shared.start(LIMITS)
    process.stdin.close()
    assert ended(process) == "ended with status 0"


@pytest.fixture
def closed_standard_streams():
    """Close stdin, stdout and stderr, so that the next descriptors are 0 to 2."""
    kept = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 100) for each in range(3)]
    os.closerange(0, 3)
    yield
    for number, each in enumerate(kept):
        os.dup2(each, number)
        os.close(each)


@pytest.mark.parametrize("files", [0, 3])
def test_the_server_serves_a_process_without_standard_streams(
    closed_standard_streams, shared, files
):
    """Files that the process opens later may take their descriptors."""
    for _ in range(files):
        os.open(os.devnull, os.O_RDONLY)
    process = shared.start(LIMITS)
    process.stdin.close()
    assert ended(process) == "ended with status 0"


@pytest.mark.parametrize("free", [0, 1, 4])
def test_a_worker_that_cannot_be_started_is_refused_and_can_be_started_later(tmp_path, free):
    """Without descriptors there is no socket or pipe to the process."""
    worker = ExactWorker(tmp_path / "exact", threads=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    first = os.dup(0)
    os.close(first)  # The least number that is free.
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + free, hard))
    try:
        with pytest.raises(ResourcesShort, match=r"Too many open files.*; free descriptors"):
            worker.query("SELECT 1 AS n", [])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir("/proc/self/fd") == before
    assert worker.query("SELECT 1 AS n", [])["n"].to_pylist() == [1]
    worker.close()


@pytest.mark.parametrize("free", range(5))
def test_a_server_that_cannot_be_started_keeps_no_descriptors(shared, free):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    first = os.dup(0)
    os.close(first)  # The least number that is free.
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            shared.start(LIMITS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("path", ["/nowhere/python", "", None])
def test_a_server_without_an_interpreter_is_refused(shared, monkeypatch, path):
    """An embedded Python does not know its executable."""
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(sys, "executable", path)
    with pytest.raises(FileNotFoundError, match=path or "sys.executable is"):
        shared.start(LIMITS)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("free", range(6))
def test_a_start_without_free_descriptors_keeps_none(many_descriptors, shared, free):
    process = shared.start(LIMITS)  # The server runs from now on.
    process.kill()
    process.wait()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    first = os.dup(0)
    os.close(first)  # The least number that is free.
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            shared.start(LIMITS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir("/proc/self/fd") == before


def test_the_server_ends_with_its_last_user_and_starts_again():
    shared, users, before = SharedForkServer(), [object(), object()], set(children(os.getpid()))
    for user in users:
        shared.add(user)
    process = shared.start(LIMITS)
    [server] = set(children(os.getpid())) - before
    shared.remove(users[0])
    shared.remove(users[0])
    assert server in children(os.getpid())
    assert process.is_running
    shared.remove(users[1])
    assert server not in children(os.getpid())
    process.stdin.close()
    assert ended(process) == "ended with its fork server"
    shared.add(users[0])
    again = shared.start(LIMITS)
    assert again.is_running
    again.kill()
    assert ended(again) == KILLED
    shared.remove(users[0])
    assert set(children(os.getpid())) == before


def test_a_query_whose_server_was_killed_fails_and_the_next_one_is_answered(tmp_path):
    worker, before = ExactWorker(tmp_path / "exact", threads=1), set(exact_worker_processes())
    assert worker.query("SELECT 1 AS n", [])["n"].to_pylist() == [1]
    [process] = set(exact_worker_processes()) - before
    endless = "SELECT range AS n FROM range(100000000000)"

    def kill_both_and_read_on() -> None:
        with worker.reading(endless, [], ResultLimits()) as result:
            kill(server_of(process))
            os.kill(process, signal.SIGKILL)
            list(result)

    with pytest.raises(InternalError, match="ended with its fork server"):
        kill_both_and_read_on()
    assert worker.query("SELECT 2 AS n", [])["n"].to_pylist() == [2]
    kill(server_of(*set(exact_worker_processes()) - before))
    assert worker.query("SELECT 3 AS n", [])["n"].to_pylist() == [3]
    worker.close()


def kill(child: int) -> None:
    """Kill a child of this process, and wait until it has ended."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def test_a_forked_child_has_a_server_of_its_own(shared):
    process = shared.start(LIMITS)
    child = os.fork()
    if child == 0:
        own, code = object(), 1
        try:
            shared.add(own)
            second = shared.start(LIMITS)
            second.kill()
            code = 0 if ended(second) == KILLED else 2
            shared.remove(own)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert process.is_running
    process.kill()
    assert ended(process) == KILLED
