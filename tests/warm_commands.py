"""Command lines of pages in warm processes, which need not load the command for each line.

A page's environment and directory replace those of the warm process. tests/cli/test_main.py and
tests/test_examples.py start the commands in interpreters of their own.
"""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from shedder.cli.main import main
from tests.warm_process import WarmProcess

_SHELL_ALONE = frozenset("$`~\n")  # Characters that a shell replaces, or that divide commands.
_PUNCTUATION = frozenset("();<>|&")  # Words of redirections, pipes and lists of commands.
_PYTHON_MODULE = ["python", "-m"]


def words_of(command: str) -> list[str] | None:
    """Return the words of a command line that a warm process can run; None: it needs a shell."""
    if not _SHELL_ALONE.isdisjoint(command):
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    if any(word and _PUNCTUATION.issuperset(word) for word in words):
        return None
    is_known = words[:1] == ["shedder"] or words[:2] == _PYTHON_MODULE
    return words if is_known else None


def run(words: list[str], directory: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run the words of `words_of`; return the exit code and all output."""
    with started(words, directory, environment) as process:
        output = process.output.read()
        return process.wait(), output


def started(
    words: list[str], directory: Path, environment: Mapping[str, str], errors: Path | None = None
) -> WarmProcess:
    """Start the words of `words_of`; stderr goes to the file, or with stdout."""
    return WarmProcess(_be, words, directory, environment, errors is None, errors=errors)


def _be(
    words: list[str], directory: Path, environment: Mapping[str, str], joins_output: bool
) -> None:
    """Become the process of a command line."""
    if joins_output:
        os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    if words[0] == "shedder":
        sys.argv = words
        main()
        return
    module, sys.argv = words[2], words[2:]
    sys.path.insert(0, str(directory))
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.stdout.flush()
