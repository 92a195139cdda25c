"""House rules that need the syntax trees of modules: imports, assignments, callers and words."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.house_rules import (
    LIBRARY_METHODS,
    attribute_reads,
    definitions,
    foreign_assignments,
    nodes,
    retired_names,
)
from tests.repository import PARTS, ROOT, tracked


@pytest.mark.slow
def test_imports_only_point_down():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def divided_packages() -> dict[str, dict]:
    """Contracts of import-linter that order the folders of a package, by package."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts = tools["importlinter"]["contracts"]
    return {package: each for each in contracts for package in each.get("containers", ())}


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Full names of what a module imports, those for type checks included."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings in one module.

    imports: full names of what it imports.
    assignments: as `foreign_assignments`.
    retired: as `retired_names`.
    definitions: as `definitions`.
    reads: as `attribute_reads`.
    """

    imports: frozenset[str]
    assignments: tuple[str, ...]
    retired: tuple[str, ...]
    definitions: frozenset[str]
    reads: frozenset[str]


@cache
def findings(path: Path) -> Findings:
    """Return the findings in a module; all tests of this file parse it once."""
    tree = ast.parse(path.read_text())
    return Findings(
        frozenset(imported_names(tree)),
        tuple(foreign_assignments(tree)),
        tuple(retired_names(tree)),
        frozenset(definitions(tree)),
        frozenset(attribute_reads(tree)),
    )


def circle(imports: Mapping[str, Collection[str]]) -> list[str]:
    """Modules that import each other in a circle; empty: none do.

    imports: full names of what each module imports, by its full name.
    """
    graph: dict[str, set[str]] = {}
    for module, names in imports.items():
        known = (name if name in imports else name.rpartition(".")[0] for name in names)
        graph[module] = {name for name in known if name in imports and name != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    paths = [path for part in PARTS for path in tracked(f"{part}/*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    imports = {
        name.removesuffix(".__init__"): findings(path).imports
        for name, path in zip(names, paths, strict=True)
    }
    assert len(imports) > 500
    assert not circle(imports)


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        ({"a": "from b import B", "b": "import c", "c": ""}, set()),
        ({"a": "from b import B", "b": "import a"}, {"a", "b"}),
        (
            {"a": "import b", "b": "if TYPE_CHECKING:\n    from c import C", "c": "import a"},
            set("abc"),
        ),
        ({"p.a": "from p import b", "p.b": "def f():\n    from p.a import A"}, {"p.a", "p.b"}),
        ({"p": "", "p.a": "from p import b", "p.b": "from p.c import C"}, set()),
    ],
)
def test_a_circle_of_imports_is_found(modules, found):
    imports = {name: set(imported_names(ast.parse(text))) for name, text in modules.items()}
    assert set(circle(imports)) == found


def sibling_imports(package: str) -> dict[str, set[str]]:
    """Siblings that each folder of a package imports."""
    found: dict[str, set[str]] = {}
    top = ROOT / package.replace(".", "/")
    for path in tracked(f"{package.replace('.', '/')}/*/*.py"):
        folder = path.relative_to(top).parts[0]
        siblings = found.setdefault(folder, set())
        for name in findings(path).imports:
            sibling = name.removeprefix(f"{package}.").partition(".")[0]
            if name.startswith(f"{package}.") and sibling != folder:
                siblings.add(sibling)
    return found


def listed(text: str, label: str) -> list[str]:
    """Names in the sentence of a docstring that begins with a label."""
    sentence = re.search(rf"^{re.escape(label)}: ([\w\s,]+)\.$", text, re.MULTILINE)
    return re.split(r",\s+", sentence[1]) if sentence else []


@pytest.mark.parametrize("package", divided_packages())
def test_every_folder_lists_the_folders_that_it_imports(package):
    contract = divided_packages()[package]
    bottom_first = contract["layers"][::-1]
    found = sibling_imports(package)
    assert found.keys() <= set(bottom_first)
    wrong = []
    for folder, siblings in found.items():
        path = ROOT / package.replace(".", "/") / folder / "__init__.py"
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        wanted = [name for name in bottom_first if name in siblings]
        says_none = f"Imports no other package of `{package}`." in text
        if listed(text, "May import") != wanted or says_none is bool(wanted):
            wrong.append(f"{package}.{folder}: {', '.join(wanted)}")
    assert not wrong, "\n".join(wrong)


def test_no_order_of_imports_has_an_exception():
    contracts = divided_packages().values()
    assert contracts
    assert all(each["exhaustive"] and not each.get("ignore_imports") for each in contracts)


@pytest.mark.slow
def test_no_module_assigns_attributes_of_objects_of_other_modules():
    paths = [
        path for part in (*PARTS, "benchmarks", "examples") for path in tracked(f"{part}/*.py")
    ]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        if "v1" not in path.parts
        for line in findings(path).assignments
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(stream): stream.late = 1", ["1: stream.late"]),
        (
            "def f(core): core.state.levels = core.pressure = 1",
            ["1: core.pressure", "1: core.state.levels"],
        ),
        ("def f(stream): stream.late += 1", ["1: stream.late"]),
        ("class A:\n    def f(self): self.lag, self.other.late = 1, 2", ["2: self.other.late"]),
        ("def f():\n    def g(): stream.schema = 1", ["2: stream.schema"]),
        ("def f(): made = Stream(); made.late = 1", []),
        ("class A:\n    late: int\ndef f(a, b): a.late = b.lag = 1", ["3: b.lag"]),
        ("class A:\n    def g(self): self.late = 1\ndef f(a): a.late = 1", []),
        ("def f(stream): stream.late[0] = 1; late = stream.late", []),
        ("def f(streams): one = streams.get(1); one.late = 1", ["1: one.late"]),
        ("def f(): made = Stream.of(1); made.late = made.lag = 1", []),
        ("def f(asked: query_pb2.Query): asked.last.row = 1", []),
        ("def f(): said: a_pb2.B = wire(c); said.last.row = 1", []),
        ("def f(): said = a_pb2.B(); said.last.row = 1", []),
        ("def f(): said = stream(); said.last.row = 1", ["1: said.last.row"]),
        ("class A:\n    def f(self): self._end = finalize(g); self._end.atexit = False", []),
        ("def f(sizes): sizes.flags.writeable = False", []),
    ],
)
def test_an_assignment_to_the_attribute_of_another_object_is_found(text, found):
    assert foreign_assignments(ast.parse(text)) == found


@pytest.mark.slow
def test_no_code_is_called_by_tests_alone():
    """Code that pages of the documentation call has a caller."""
    code = [path for part in (*PARTS, "benchmarks", "examples") for path in tracked(f"{part}/*.py")]
    used = {name for path in code for name in findings(path).imports | findings(path).reads}
    pages = tracked("*.md", "*.j2", "pyproject.toml")
    words = {word for page in pages for word in re.findall(r"\w+", page.read_text())}
    unused = []
    for path in code:
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in PARTS and not {"v1", "plan_precision"} & set(parts):
            for name in findings(path).definitions:
                last = name.rpartition(".")[2]
                known = last if last != name else ".".join([*parts, name])
                if known not in used and last not in words | LIBRARY_METHODS:
                    unused.append(".".join([*parts, name]))
    assert not unused, "\n".join(sorted(unused))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(): ...\ndef g(): f()", {"g"}),
        ("def f(): f()", {"f"}),
        ("A = 1\nB: int = A\n_C = 2", {"B"}),
        ("class A:\n    def f(self): ...\n    def _g(self): ...", {"A", "A.f"}),
        ("@app.command()\ndef f(): ...", set()),
        ("@cache\ndef f(): ...", {"f"}),
    ],
)
def test_a_definition_that_its_module_does_not_read_is_found(text, found):
    assert definitions(ast.parse(text)) == found


def test_an_attribute_of_a_module_is_read_by_its_full_name():
    text = "from a import b as c\nimport d.e\nc.f(); d.e.g; x.h().i; x.j = 1"
    text += "\nmatch x:\n    case K(l=1): ..."
    assert attribute_reads(ast.parse(text)) == {*"efghil", "a.b.f", "d.e", "d.e.g"}


@pytest.mark.slow
def test_no_identifier_has_a_retired_word():
    paths = [path for part in (*PARTS, "benchmarks") for path in tracked(f"{part}/*.py")]
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in paths for line in findings(path).retired
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def read(told): ...", ["1: told"]),
        ("class Lent: ...", ["1: Lent"]),
        ("row.asked_before(news=1)", ["1: asked_before", "1: news"]),
        ("case = NOBODY", ["1: NOBODY"]),
        ("part.asked_min = LentAnswer()", []),
        ("def test_a_caller_is_told(): ...", []),
        ("basked = lacksadaisical = newsletter = 'told'", []),
    ],
)
def test_a_retired_word_is_found(text, found):
    lines = retired_names(ast.parse(text))
    assert sorted(line.rpartition(": ")[0] for line in lines) == found
