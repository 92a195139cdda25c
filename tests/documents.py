"""Pages of documentation: their code blocks, and how a console block is run."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shedder.cli.main import main
from tests.warm_process import WarmProcess

ROOT = Path(__file__).parent.parent

# A comment on the line before the fence keeps a block from being run, and says why.
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\s*\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SHELL_ALONE = frozenset("$`~\n")  # Characters that a shell replaces, or that divide commands.
_PUNCTUATION = frozenset("();<>|&")  # Words of redirections, pipes and lists of commands.
_PYTHON_MODULE = ["python", "-m"]


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. line: of its first line of code, for messages."""

    page: Path
    line: int
    language: str
    text: str
    reason_not_run: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that is executed; the settings and command pages are generated."""
    generated = {"settings.md", "cli.md", "benchmarks.md", "coverage.md", "coverage_progressive.md"}
    return [
        ROOT / "README.md",
        *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in generated),
    ]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], found["text"], found["reason"])


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block and what the page shows below it."""

    command: str
    shown: tuple[str, ...]


def steps(block: Block) -> Iterator[Step]:
    """`$ ` begins a command, `> ` goes on with it, the rest is what it prints."""
    command, shown = "", []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step(command, tuple(shown))
            command, shown = line[2:], []
        elif line.startswith("> ") and not shown:
            command += "\n" + line[2:]
        elif line.strip():
            shown.append(line)
    if command:
        yield Step(command, tuple(shown))


class Console:
    """Runs a page's commands in a directory; what ends in & runs until the page ends.

    Commands without syntax of the shell run in warm processes, which need not load them. Their
    starts in interpreters of their own are those of tests/cli/test_main.py.

    port: stands in for Shedder's own 7077, so that pages may be tested beside a server.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.port = _free_port()
        self._stack = stack
        bin_directory = Path(sys.executable).parent
        self._environment = {
            "HOME": str(directory),
            "PATH": f"{bin_directory}:/usr/bin:/bin",
            "NO_COLOR": "1",
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "SHEDDER_LISTEN": f"127.0.0.1:{self.port}",
            # A page is run by the code that it stands beside, wherever that was installed from.
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        }

    def localized(self, text: str) -> str:
        return text.replace("7077", str(self.port))

    def run(self, step: Step) -> tuple[int, str]:
        """Exit code and all output of a command."""
        command = self.localized(step.command)
        if command.endswith("&"):
            self._start(command.removesuffix("&").strip())
            return 0, ""
        if (words := _words_of(command)) is not None:
            return _run_warm(words, self.directory, self._environment)
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, command: str) -> None:
        log = self.directory / "server.log"
        server = _started(shlex.split(command), self.directory, self._environment, log)
        self._stack.callback(_end, server)
        line = server.output.readline()  # The address, as soon as calls are answered.
        assert line.strip().endswith(f":{self.port}"), f"{line}\n{log.read_text()}"


def _end(server: WarmProcess) -> None:
    with server:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _words_of(command: str) -> list[str] | None:
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


def _run_warm(words: list[str], directory: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run the words of `_words_of`; return the exit code and all output."""
    with _started(words, directory, environment) as process:
        output = process.output.read()
        return process.wait(), output


def _started(
    words: list[str], directory: Path, environment: Mapping[str, str], errors: Path | None = None
) -> WarmProcess:
    """Start the words of `_words_of`; stderr goes to the file, or with stdout."""
    return WarmProcess(_become, words, directory, environment, errors is None, errors=errors)


def _become(
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_NUMBER = re.compile(r"[0-9][0-9.,]*(e[+-]?[0-9]+)?")


def shape(line: str) -> str:
    """A line with its numbers and spacing taken out: what may not differ between page and run."""
    return " ".join(re.sub(r"[─-]{2,}", "-", _NUMBER.sub("#", line)).split())


def missing_lines(shown: tuple[str, ...], output: str) -> list[str]:
    """Lines of the page that the run did not print, by shape; a line of … stands for any lines."""
    printed = {shape(line) for line in output.splitlines()}
    return [line for line in shown if line.strip() != "…" and shape(line) not in printed]
