"""Every kind of system call fails once: SQLite's and Arrow's too, which no seam of ours sees.

Like pebble and SQLite in their own tests: raise the index of the failing call until no call
fails. The result is success or a clean error; what was acknowledged is there afterwards.
"""

import shutil
import subprocess
import sys
import textwrap

import pytest

from shedder.archive.check import check
from tests.archive.test_store import positions, recover

CHILD = """
    import sys
    from pathlib import Path
    from shedder.archive.records import Batch, Kind
    from shedder.errors import ShedderError
    from shedder.streams.batches import encode
    from tests.archive.schemas import SCHEMA, batch
    from tests.archive.test_store import recover

    try:
        store = recover(Path(sys.argv[1]))
        if not store.streams():
            store.create_stream(SCHEMA)
        print("created", flush=True)
        for number in range(6):
            first = store.end_position(1)
            content = batch(first, 20)
            header = Batch(1, "p", 0, number, first, 20, 0)
            sequence = store.log.append(Kind.BATCH, [header.to_bytes(), encode(content)])
            store.log.sync()
            print(first + 20, flush=True)
            store.add(1, first, content, sequence=sequence)
            if number in (2, 4):
                store.cut(1)
                store.write_checkpoint(sequence + 1, {"stream/1": b"x"})
        store.close()
    except ShedderError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(3)
"""


def run(directory, call: str, error: str, index: int) -> tuple[int, list[str], bool]:
    """The child's exit code, its output, and whether the call failed."""
    trace = directory.with_name(f"{directory.name}.trace")
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:error={error}:when={index}"]
    command += [sys.executable, "-B", "-c", textwrap.dedent(CHILD), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, done.stdout.split(), "(INJECTED)" in trace.read_text()


def fail_each(tmp_path, call: str, error: str, step: int) -> int:
    index, failures = 1, 0
    while True:
        directory = tmp_path / f"{index}"
        directory.mkdir()
        _, output, injected = run(directory, call, error, index)
        acknowledged = max((int(word) for word in output if word.isdigit()), default=0)
        store = recover(directory)
        assert store.recovery.log.damages == ()
        if store.streams():
            end = store.end_position(1)
            assert acknowledged <= end <= acknowledged + 20
            assert positions(store) == list(range(end))
        else:
            assert not output
        store.close()
        assert check(directory).damages == []
        if not injected:
            return failures
        failures += 1
        index += step


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("/pwritev.*", "ENOSPC", 3),
        ("pwrite64", "EIO", 9),
        ("fdatasync", "EIO", 4),
        ("fsync", "EIO", 2),
        ("/rename.*", "EIO", 1),
        ("/unlink.*", "EIO", 2),
        ("ftruncate", "EIO", 2),
        ("/mkdir.*", "ENOSPC", 2),
    ],
)
def test_a_failing_system_call_is_a_clean_error_and_loses_nothing(tmp_path, call, error, step):
    assert fail_each(tmp_path, call, error, step) >= 1
