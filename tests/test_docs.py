"""Documentation that executes: every python, console and sql block runs as it stands.

The blocks of a page share one directory, one python namespace and one embedded database for sql.
A page's shell output is compared by shape: numbers may differ, words may not.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from shedder.cli.reference import markdown
from shedder.cli.script import statements
from shedder.errors import ShedderError
from tests.archive.child_processes import exact_worker_processes
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
    before = exact_worker_processes()
    with ExitStack() as stack:
        console = Console(tmp_path, stack)
        for block in blocks(page):
            if block.reason_not_run is None:
                _run(block, console, namespace, stack)
    assert exact_worker_processes() == before, "the page leaves a database open"


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


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)|[^\w\- ]", "", heading.lower()) for heading in headings]
    return frozenset(heading.replace(" ", "-") for heading in plain)


@pytest.mark.parametrize("page", [*pages(), *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_to_a_heading_lead_to_one_that_exists(page):
    links = re.findall(r"\]\(([\w./]*\.md)?#([^)\s]+)\)", page.read_text())
    broken = [
        (target, anchor)
        for target, anchor in links
        if anchor not in anchors_of(page.parent / target if target else page)
    ]
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


PICTURES = ROOT / "docs/pictures"
WALK_FILES_MAX = 40  # A walk is read in one sitting.


@dataclass(frozen=True)
class Walk:
    """A walk of docs/architecture.md.

    picture: file name of its picture.
    steps: number and name of each step, in order.
    files: paths from the root of the repository, in order.
    counted: the number of files that the page says.
    """

    picture: str
    steps: list[tuple[int, str]]
    files: list[str]
    counted: int


def walks() -> dict[str, Walk]:
    """Read the walks from the sections of the page, by their titles."""
    found = {}
    for section in (ROOT / "docs/architecture.md").read_text().split("\n## ")[1:]:
        picture = re.search(r"\]\(pictures/([\w-]+\.svg)\)", section)
        if picture:
            rows = re.findall(r"^\| (\d+)( [^|]+)? \| `([\w/]+\.py)` \|", section, re.MULTILINE)
            counted = re.search(r"^The walk has (\d+) files\.", section, re.MULTILINE)
            assert counted, section[:40]
            found[section.partition("\n")[0]] = Walk(
                picture[1],
                [(int(number), name.strip()) for number, name, _ in rows if name],
                [path if (ROOT / path).exists() else f"shedder/{path}" for _, _, path in rows],
                int(counted[1]),
            )
    return found


WALKS = walks()


def drawing() -> ModuleType:
    """Load the module that draws the pictures; it stands beside them, in no package."""
    spec = importlib.util.spec_from_file_location("walks", PICTURES / "walks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_four_walks():
    assert sorted(walk.picture for walk in WALKS.values()) == [
        "batch.svg",
        "level.svg",
        "question.svg",
        "recovery.svg",
    ]


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_walk_is_short_and_returns_to_no_file(walk):
    assert len(walk.files) <= WALK_FILES_MAX
    assert len(set(walk.files)) == len(walk.files) == walk.counted


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_picture_has_the_steps_of_its_table(walk):
    [drawn] = [each for each in drawing().WALKS if each.file == walk.picture]
    steps = sorted((step.number, step.name) for step in drawn.steps if step.number)
    assert steps == walk.steps
    assert [number for number, _ in steps] == list(range(1, len(steps) + 1))


def test_the_pictures_are_as_the_module_draws_them():
    module = drawing()
    drawn = {each.file: module.picture(each) for each in module.WALKS}
    stored = {path.name: path.read_text() for path in PICTURES.glob("*.svg")}
    assert drawn == stored, "run: make docs"
