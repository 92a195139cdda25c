"""Real processes and a real kernel: killed at any moment, or at the end of what may be written."""

import random
import signal

import pytest

from shedder.archive.log.log import Log
from shedder.archive.log.records import RecordType
from shedder.archive.operations.verify import check
from tests.archive.children import fill_the_log, ingest_for_ever
from tests.archive.worlds import positions, recover
from tests.scale import scaled
from tests.seeds import seed
from tests.warm_process import WarmProcess


def kill_and_recover(directory, kills: int, chance: random.Random) -> None:
    acknowledged = 0
    for _ in range(kills):
        with WarmProcess(ingest_for_ever, directory) as process:
            for _ in range(chance.randint(1, 40)):
                acknowledged = int(process.output.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.output.read().split()
            acknowledged = int(rest[-1]) if rest else acknowledged
            assert process.wait() == -signal.SIGKILL
        assert check(directory).damages == []
        store = recover(directory)
        end = store.end_position(1)
        assert positions(store) == list(range(end))
        assert acknowledged <= end <= acknowledged + 60
        store.close()


@pytest.mark.slow
def test_killed_processes_lose_nothing_that_they_acknowledged(tmp_path):
    kill_and_recover(tmp_path, kills=scaled(8, 30), chance=random.Random(seed("kills")))


@pytest.mark.slow
def test_a_write_that_the_kernel_cuts_short_leaves_no_half_record(tmp_path):
    with WarmProcess(fill_the_log, tmp_path) as process:
        written = int(process.output.read())
        assert process.wait() == 0
    assert written == 9  # 64 + 9 * 1,032 bytes fit into 10,000; the tenth was cut short
    log = Log.open(tmp_path)
    assert log.recovery.torn_bytes == 0
    bodies = [len(record.body) for record in log.read() if record.kind != RecordType.MARK]
    assert bodies == [999] * 9 + [5]
    log.close()
