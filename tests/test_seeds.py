"""The base seed of a run, and seeds by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.seeds import (
    BASE,
    ROOT,
    VARIABLE,
    WITHOUT_GIT,
    base_seed,
    derived,
    of_commit,
    seed,
    seeds,
)


def test_the_environment_gives_the_base_seed():
    assert base_seed({VARIABLE: "17"}) == 17


def test_a_seed_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="noon"):
        base_seed({VARIABLE: "noon"})


def test_without_git_the_base_seed_is_fixed(tmp_path):
    assert of_commit(tmp_path) == WITHOUT_GIT


def test_each_commit_has_a_base_seed_of_its_own(tmp_path):
    def commit(text: str) -> int:
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        git = ["git", *who, "commit", "-q", "--allow-empty", "-m", text]
        subprocess.run(git, cwd=tmp_path, check=True)
        return of_commit(tmp_path)

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    first = commit("first")
    assert of_commit(tmp_path) == first
    assert commit("second") != first


def test_a_seed_is_worked_out_from_base_and_names_alone():
    assert derived(17, "kill", 3) == 308_311_864
    assert len({derived(17, "kill", 3), derived(18, "kill", 3), derived(17, "kill", "3")}) == 3
    assert derived(17, "ab", "c") != derived(17, "a", "bc")


def test_another_process_of_the_run_has_the_same_seed():
    command = "from tests.seeds import seed; print(seed('world', 1))"
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env=os.environ | {VARIABLE: str(BASE), "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == seed("world", 1)


def test_more_seeds_begin_with_the_same_and_differ():
    assert seeds(50, "world")[:5] == seeds(5, "world")
    assert len(set(seeds(50, "world"))) == 50
    assert all(0 <= one < 2**31 for one in seeds(50, "world"))
