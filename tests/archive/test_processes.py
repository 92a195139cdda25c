"""Real processes and a real kernel: killed at any moment, or at the end of what may be written."""

import random
import signal
import subprocess
import sys
import textwrap

import pytest

from shedder.archive.check import check
from shedder.archive.log import Log
from shedder.archive.records import Kind
from tests.archive.test_store import positions, recover

INGEST = """
    import sys
    from pathlib import Path
    from shedder.archive.commit import GroupCommit
    from shedder.archive.records import Batch, Kind
    from shedder.streams.batches import encode
    from tests.archive.schemas import SCHEMA, batch
    from tests.archive.test_store import recover

    store = recover(Path(sys.argv[1]))
    if not store.streams():
        store.create_stream(SCHEMA)

    def durable(entries):
        for entry in entries:
            header, content = entry.token
            store.add(1, header.first_position, content, sequence=entry.sequence)
        if store.tail_rows(1) > 300:
            store.cut(1)
            store.write_checkpoint(entries[-1].sequence + 1, {"stream/1": b"x"})

    commit = GroupCommit(store.log, durable)
    first = store.end_position(1)
    while True:
        waiting = []
        for _ in range(3):
            content = batch(first, 20)
            header = Batch(1, "p", 0, first, first, 20, 0)
            parts = [header.to_bytes(), encode(content)]
            waiting.append(commit.submit(Kind.BATCH, parts, (header, content)))
            first += 20
        for future in waiting:
            future.result()
        print(first, flush=True)
"""

FULL = """
    import resource, sys
    from pathlib import Path
    from shedder.archive.log import Log
    from shedder.errors import DiskFull

    log = Log.open(Path(sys.argv[1]))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    written = 0
    try:
        while True:
            log.append(1, [b"h", bytes(999)])
            written += 1
    except DiskFull:
        pass
    log.sync()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.append(1, [b"h", b"after"])
    log.sync()
    print(written)
"""


def python(code: str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_and_recover(directory, kills: int, seed: int) -> None:
    chance, acknowledged = random.Random(seed), 0
    for _ in range(kills):
        process = python(INGEST, str(directory))
        for _ in range(chance.randint(1, 40)):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        process.wait()
        process.stdout.close()
        assert check(directory).damages == []
        store = recover(directory)
        end = store.end_position(1)
        assert positions(store) == list(range(end))
        assert acknowledged <= end <= acknowledged + 60
        store.close()


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path):
    kill_and_recover(tmp_path, kills=2, seed=1)


@pytest.mark.slow
def test_thirty_kills_lose_nothing_that_was_acknowledged(tmp_path):
    kill_and_recover(tmp_path, kills=30, seed=2)


@pytest.mark.slow
def test_a_write_that_the_kernel_cuts_short_leaves_no_half_record(tmp_path):
    process = python(FULL, str(tmp_path))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    written = int(output)
    assert written == 9  # 64 + 9 * 1,032 bytes fit into 10,000; the tenth was cut short
    log = Log.open(tmp_path)
    assert log.recovery.torn_bytes == 0
    bodies = [len(record.body) for record in log.read() if record.kind != Kind.MARK]
    assert bodies == [999] * 9 + [5]
    log.close()
