"""The order of test files, and the tables of their seconds."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.budget import (
    JVM,
    TESTS,
    CpuClock,
    Ledger,
    directories,
    group_of,
    longest_first,
    read_budget,
    recorded,
    slowest,
)


def ledger() -> Ledger:
    found = Ledger()
    found.add("tests/engine/recovery/test_kill.py::test_a", 3.0, 4.0)
    found.add("tests/engine/recovery/test_kill.py::test_b[x::y]", 1.0, 2.0)
    found.add("tests/engine/runtime/test_background_pace.py::test_a", 0.2, 0.3)
    found.add("tests/test_docs.py::test_a", 6.0, 7.0)
    return found


def test_seconds_are_summed_by_directory_and_what_is_over_is_marked():
    assert directories(ledger(), {"engine": 4.0, ".": 12.0}) == [
        "directory        cpu s  wall s  budget  share",
        ".                    6       7      12    50%",
        "engine               4       6       4   105%  over budget",
        "all                 10      13      16    64%",
    ]


def test_a_directory_without_a_budget_says_so():
    assert directories(ledger(), {"engine": 4.0})[1] == ".                    6       7    none"


def test_the_slowest_files_come_first():
    assert [line.split()[-1] for line in slowest(ledger())] == [
        "tests/test_docs.py",
        "tests/engine/recovery/test_kill.py",
        "tests/engine/runtime/test_background_pace.py",
    ]


def test_files_begin_in_order_of_their_recorded_seconds_and_keep_together():
    nodeids = ["a.py::one", "b.py::one", "a.py::two", "new.py::one", "c.py::one", "b.py::two"]
    order = longest_first(nodeids, {"a.py": 2, "b.py": 9, "c.py": 5})
    assert [nodeids[place] for place in order] == [
        "b.py::one",
        "b.py::two",
        "c.py::one",
        "a.py::one",
        "a.py::two",
        "new.py::one",
    ]


def test_all_files_that_need_java_are_one_group():
    some = [f"{JVM[0]}test_truths.py::test_a[b/c.py::d]", f"{JVM[1]}::test_b"]
    assert {group_of(nodeid) for nodeid in some} == {"jvm"}
    assert group_of("tests/cql/test_parse.py::test_a") == "tests/cql/test_parse.py"
    nodeids = ["a.py::one", *some]
    assert longest_first(nodeids, {"a.py": 5, "tests/spark_ingest/test_truths.py": 6}) == [1, 2, 0]


def test_each_file_that_needs_java_is_in_that_group():
    mark = re.compile(r"^ *(@|pytestmark = .*)pytest\.mark\.spark\b", re.MULTILINE)
    paths = [path for path in TESTS.rglob("test_*.py") if mark.search(path.read_text())]
    names = [path.relative_to(TESTS.parent).as_posix() for path in paths]
    assert names
    assert {group_of(name) for name in names} == {"jvm"}


def test_recorded_seconds_of_files_that_did_not_run_stay():
    text = recorded(ledger(), {"tests/cli/test_exit_codes.py": 8, "tests/test_docs.py": 1})
    assert json.loads(text) == {
        "tests/cli/test_exit_codes.py": 8,
        "tests/engine/recovery/test_kill.py": 6,
        "tests/test_docs.py": 7,
    }


def test_every_directory_of_tests_has_a_budget():
    names = {path.relative_to(TESTS).parent.as_posix() for path in TESTS.rglob("test_*.py")}
    assert {name.partition("/")[0] for name in names} == set(read_budget())


def test_seconds_of_a_child_count_once_while_it_lives_and_after_it_has_ended():
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    clock = CpuClock()
    with subprocess.Popen(
        [sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        clock.since_last(look_for_java=False)
        assert clock.since_last(look_for_java=True) >= 0.4
        child.communicate("\n")
    assert clock.since_last(look_for_java=False) < 0.4
