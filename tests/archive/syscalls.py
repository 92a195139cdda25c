"""A store at work in a process of its own, one of whose system calls fails or kills it."""

import shutil
import subprocess
import sys
import textwrap

import pytest

from shedder.archive.check import check
from tests.archive.test_store import positions, recover

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")

CHILD = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from shedder.archive.layouts.parts import part_of
    from shedder.archive.records import Batch, Kind
    from shedder.cql.layout import Lazy
    from shedder.errors import ShedderError
    from shedder.streams.batches import encode
    from tests.archive.schemas import SCHEMA, batch
    from tests.archive.test_store import recover

    try:
        store = recover(Path(sys.argv[1]))
        if not store.streams():
            lazy = len(sys.argv) > 2
            store.create_stream(replace(SCHEMA, layout=Lazy()) if lazy else SCHEMA)
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
            if number == 5 and len(sys.argv) > 2:
                part = part_of(store.runs(1)[0], 0.5)
                store.note_scans([(part, 0.5)])
                store.vacuum(store.runs(1)[0])
                store.apply_retention(1, 60_000)
                print("retained", flush=True)
        store.close()
    except ShedderError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(3)
"""


RELAYING = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from shedder.archive.layouts.parts import part_of
    from shedder.cql.layout import Eager, Hybrid, Lazy, Plain
    from shedder.errors import ShedderError
    from tests.archive.schemas import SCHEMA
    from tests.archive.test_store import ingest, recover

    try:
        store = recover(Path(sys.argv[1]))
        store.create_stream(replace(SCHEMA, layout=Plain()))
        print("created", flush=True)
        for layout in (Hybrid(3, 1), Lazy(), Eager((0.5,))):
            ingest(store, store.end_position(1), 20)
            print(store.end_position(1), flush=True)
            store.cut(1)
            store.set_layout(1, layout)
            for run in store.unlike(1):
                store.rewrite(run)
            for reduction in (0.4, 0.7):
                store.note_scans([(part_of(run, reduction), reduction) for run in store.runs(1)])
                for run in store.waste(1):
                    store.vacuum(run)
        store.close()
    except ShedderError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(3)
"""

PURGING = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from shedder.cql.layout import Hybrid
    from shedder.errors import ShedderError
    from tests.archive.schemas import SCHEMA
    from tests.archive.test_purged_runs import delete, purge
    from tests.archive.test_store import ingest, recover

    try:
        store = recover(Path(sys.argv[1]))
        store.create_stream(replace(SCHEMA, layout=Hybrid(3, 1)))
        print("created", flush=True)
        for first in (0, 20):
            ingest(store, first, 20)
            print(first + 20, flush=True)
            store.cut(1)
        delete(store, lambda place: place % 2 == 0 or place >= 20)
        print("deleted", flush=True)
        purge(store)
        store.close()
    except ShedderError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(3)
"""


def all_of(output: list[str], end: int) -> list[list[int]]:
    """The positions that there may be: every one."""
    return [list(range(end))]


def some_of(output: list[str], end: int) -> list[list[int]]:
    """The positions that PURGING may leave."""
    purged = list(range(1, 20, 2))
    return [purged] if "deleted" in output else [list(range(end)), purged]


def run(
    directory, call: str, error: str, index: int, child: str = CHILD
) -> tuple[int, list[str], bool]:
    """The child's exit code, its output, and whether the call failed."""
    trace = directory.with_name(f"{directory.name}.trace")
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:{error}:when={index}"]
    command += [sys.executable, "-B", "-c", textwrap.dedent(child), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    killed = -9 if error == "signal=KILL" else 0
    assert done.returncode in (0, 3, killed), done.stderr
    happened = done.returncode == -9 or "(INJECTED)" in trace.read_text()
    return done.returncode, done.stdout.split(), happened


def kill(directory, call: str, index: int) -> tuple[list[str], bool]:
    """What a child had said when the index-th call killed it, and whether it did."""
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:signal=KILL:when={index}"]
    code = textwrap.dedent(CHILD)
    command += [sys.executable, "-B", "-c", code, str(directory), "retention"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    killed = done.returncode in (-9, 137)
    assert killed or done.returncode == 0, done.stderr
    return done.stdout.split(), killed


def fail_each(
    tmp_path, call: str, error: str, step: int, child: str = CHILD, allowed=all_of
) -> int:
    index, failures = 1, 0
    while True:
        directory = tmp_path / f"{index}"
        directory.mkdir()
        _, output, injected = run(directory, call, error, index, child)
        acknowledged = max((int(word) for word in output if word.isdigit()), default=0)
        store = recover(directory)
        assert store.recovery.log.damages == ()
        if store.streams():
            end = store.end_position(1)
            assert acknowledged <= end <= acknowledged + 20
            assert positions(store) in allowed(output, end)
        else:
            assert not output
        store.close()
        report = check(directory)
        assert (report.damages, report.notes) == ([], [])
        if not injected:
            return failures
        failures += 1
        index += step
