"""Documentation that executes: every python, console and sql block runs as it stands.

The blocks of a page share one directory, one python namespace and one embedded database for sql.
A page's shell output is compared by shape: numbers may differ, words may not.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from shedder.cli.reference import markdown
from shedder.cli.script import statements
from shedder.errors import ShedderError
from tests.documents import ROOT, Block, Console, blocks, missing_lines, pages, steps
from tests.repository import tracked
from tests.streams_of_docs import demo_database

LANGUAGES = {"", "python", "console", "sql", "toml", "proto", "text", "json"}
# An sql comment that says that the next statement is refused, and with which error.
_REFUSED = re.compile(r"--\s*refused:?\s*(\w*)", re.IGNORECASE)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, object] = {}
    with ExitStack() as stack:
        console = Console(tmp_path, stack)
        for block in blocks(page):
            if block.reason_not_run is None:
                _run(block, console, namespace, stack)


def _run(block: Block, console: Console, namespace: dict, stack: ExitStack) -> None:
    match block.language:
        case "python":
            code = console.localized("\n" * (block.line - 1) + block.text)
            exec(compile(code, block.place, "exec"), namespace)
        case "console":
            _run_console(block, console)
        case "sql":
            if "sql database" not in namespace:
                directory = console.directory / "sql"
                namespace["sql database"] = stack.enter_context(demo_database(directory))
            _run_sql(block, namespace["sql database"])
        case "toml":
            tomllib.loads(block.text)


def _run_console(block: Block, console: Console) -> None:
    for step in steps(block):
        code, output = console.run(step)
        expected = re.search(r"# exit (\d+)$", step.command)
        assert code == int(expected[1] if expected else 0), (
            f"{block.place}: {step.command}\n{output}"
        )
        missing = missing_lines(step.shown, output)
        assert not missing, f"{block.place}: {step.command}\nnot printed: {missing}\nbut:\n{output}"


def _run_sql(block: Block, database) -> None:
    for statement in statements(block.text):
        refused = _REFUSED.search(statement)
        if refused is None:
            database.execute(statement)
        else:
            with pytest.raises(ShedderError) as raised:
                database.execute(statement)
            assert refused[1] in ("", type(raised.value).__name__), f"{block.place}: {statement}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_blocks_have_a_language_that_is_known(page):
    fences = re.findall(r"^```(\w*)$", page.read_text(), re.MULTILINE)
    opening = fences[::2]
    assert set(opening) <= LANGUAGES


@pytest.mark.parametrize("page", [*pages(), *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_inside_the_repository_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    broken = [target for target in targets if not (page.parent / target).exists()]
    assert not broken


_CODE_PATH = re.compile(
    r"(?<![\w./:-])((?:[A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.(?:py|proto)"
    r"|(?:shedder|synopses|allocator|spark_ingest|tests|benchmarks|engine|archive|cql|queries|streams"
    r"|overload|server|client|wire|simulation|cli)/(?:[\w-]+/)*)(?![\w*-])"
)


@cache
def names_of_code() -> frozenset[str]:
    """Return the names of the repository's files of code, without their folders."""
    return frozenset(path.name for path in tracked("*.py", "*.proto"))


@pytest.mark.parametrize("page", [*pages(), *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_a_page_names_no_path_of_code_that_does_not_exist(page):
    """Paths begin at the root or in shedder/; a file name without a folder may be anywhere."""
    known = names_of_code()
    missing = [
        name
        for name in _CODE_PATH.findall(page.read_text())
        if not ((ROOT / name).exists() or (ROOT / "shedder" / name).exists() or name in known)
    ]
    assert not missing


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text()
    pages_here = {page.name for page in Path(ROOT / "docs").glob("*.md")} - {"index.md"}
    assert not [name for name in sorted(pages_here) if f"({name})" not in index]


def test_a_block_that_is_not_run_says_why():
    reasons = [block.reason_not_run for page in pages() for block in blocks(page)]
    assert all(reason is None or len(reason.split()) >= 3 for reason in reasons)


def test_every_target_the_readme_names_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


def test_the_page_of_commands_is_fresh(monkeypatch):
    monkeypatch.delenv("SHEDDER_DATA", raising=False)
    assert (ROOT / "docs/cli.md").read_text() == markdown(), "run: make docs"
