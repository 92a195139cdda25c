"""Rules for modules, classes and dependencies that their text shows."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter

import pytest

from tests.repository import PARTS, ROOT, tracked


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("grpc", ("shedder/server/", "shedder/client/", "shedder/wire/", "shedder/v1/")),
        ("pyspark", ("spark_ingest/",)),
        (
            "duckdb",
            (
                "shedder/archive/",
                "shedder/cli/files/",
                "shedder/simulation/exact_oracle.py",
                "spark_ingest/",
            ),
        ),
        ("sqlglot", ("shedder/cql/",)),
    ],
)
def test_a_package_from_elsewhere_stays_where_it_belongs(package, places):
    wanted = re.compile(rf"^\s*(import|from) {package}\b", re.MULTILINE)
    code = {str(p.relative_to(ROOT)): p for part in PARTS for p in tracked(f"{part}/*.py")}
    users = {name for name, path in code.items() if wanted.search(path.read_text())}
    assert users
    assert not [name for name in users if not name.startswith(places)]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_typed_for_its_users(part):
    assert (ROOT / part / "py.typed").exists()


def test_every_module_says_in_its_first_line_what_it_holds():
    silent = [
        path.relative_to(ROOT)
        for path in tracked("*.py")
        if path.stat().st_size
        and "/v1/" not in str(path)
        and not path.read_text().startswith(('"""', "#!/", 'r"""'))
    ]
    assert not silent


def test_no_module_is_longer_than_500_lines():
    code = [path for part in PARTS for path in tracked(f"{part}/*.py") if "/v1/" not in str(path)]
    long = {
        str(p.relative_to(ROOT)): n for p in code if (n := len(p.read_text().splitlines())) > 500
    }
    assert not long


def test_no_folder_has_more_than_32_modules():
    modules = Counter(path.parent for path in tracked("*.py") if path.name != "__init__.py")
    full = {str(folder.relative_to(ROOT)): n for folder, n in modules.items() if n > 32}
    assert not full


def class_names(text: str) -> set[str]:
    """Names of the classes that a module defines, those inside of functions included."""
    return set(re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE))


def test_no_class_name_is_defined_in_two_modules():
    names = Counter(
        name
        for path in tracked("*.py")
        if not {"tests", "v1"} & set(path.relative_to(ROOT).parts)  # v1: named by the protocol.
        for name in class_names(path.read_text())
    )
    assert not {name for name, modules in names.items() if modules > 1}


def test_classes_are_composed_of_parts_and_not_of_mixins():
    """A class has one base; a protocol may extend one, and an error may be of two kinds."""
    several = {
        node.name
        for part in PARTS
        for path in tracked(f"{part}/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and len(node.bases) > 1
        if ast.unparse(node.bases[-1]) != "Protocol"
    }
    assert several == {"ResourcesShort", "_Listener"}  # The latter is of the standard library.


def test_nothing_is_left_for_later_in_the_code():
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for part in PARTS
        for path in tracked(f"{part}/*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not found


def test_no_part_deserializes_code_or_runs_a_shell():
    forbidden = re.compile(
        r"^\s*(import|from) (pickle|marshal|shelve|dill|cloudpickle)\b|shell=True"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for part in PARTS
        for path in tracked(f"{part}/*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if forbidden.search(line)
    ]
    assert not found


def test_every_dependency_is_pinned_by_name_and_version_only():
    pins = (ROOT / "constraints.txt").read_text().split()
    assert all(re.fullmatch(r"[a-z0-9._-]+==[A-Za-z0-9.+!]+", pin) for pin in pins)
    pinned = {pin.partition("==")[0] for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {re.split(r"[<>=\[ ]", name)[0].lower().replace("_", "-") for name in wanted}
    assert names <= pinned


def test_the_changelog_has_the_present_version():
    from shedder.version import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
