"""Bulk work gives way on its own thread, and only there."""

import os
import sys
import threading

import pytest

from shedder.archive.log.group_commit import GroupCommit
from shedder.archive.log.log import Log
from shedder.archive.log.log_queue import LogQueue
from shedder.cpu_priority import BULK, LATE, give_way, run_soon
from shedder.engine.runtime.serial_executor import ExecutorThread, SerialExecutor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these means are Linux's")


def on_a_thread(work):
    """What a function returns on a thread of its own: such changes cannot be taken back."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.parametrize("more", sorted({0, BULK, LATE, 25}))
def test_a_thread_gives_way_alone(more):
    before = niceness()

    def work() -> int:
        give_way(more)
        return niceness()

    assert on_a_thread(work) == min(19, before + more)
    assert niceness() == before


def test_a_thread_that_one_which_gives_way_has_started_gives_way_no_more_for_it():
    def work() -> tuple[int, int]:
        give_way(BULK)
        started = on_a_thread(lambda: (give_way(LATE), niceness())[1])
        return started, on_a_thread(lambda: (give_way(0), niceness())[1])

    assert on_a_thread(work) == (min(19, niceness() + LATE), min(19, niceness() + BULK))


def test_short_slices_keep_niceness_and_policy():
    def work() -> tuple[bool, int, int]:
        give_way(BULK)
        return run_soon(), niceness(), os.sched_getscheduler(0)

    taken, nice, policy = on_a_thread(work)
    assert taken
    assert nice == min(19, niceness() + BULK)
    assert policy == os.SCHED_OTHER


def test_short_slices_leave_another_policy_alone():
    def work() -> tuple[bool, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return run_soon(), os.sched_getscheduler(0)

    assert on_a_thread(work) == (False, os.SCHED_BATCH)


def test_applying_gives_way_and_the_log_does_not(tmp_path):
    executor = SerialExecutor()
    thread = ExecutorThread(executor, "test-apply", lambda: None)
    thread.start()
    assert executor.call(niceness).result() == min(19, niceness() + BULK)
    thread.close()

    found = []
    log = Log.open(tmp_path / "log", quarantine=tmp_path / "quarantine")
    queue = LogQueue()
    commit = GroupCommit(queue, log, lambda _: found.append(niceness()))
    commit.start()
    queue.submit(1, [b"header", b"body"]).result()
    commit.close()
    log.close()
    assert found == [niceness()]
