"""The house rules that a machine can check."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("shedder", "synopses", "allocator", "spark_ingest")


def tracked(*patterns: str) -> list[Path]:
    """Files that belong to the repository."""
    names = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if names.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in names.stdout.split("\0") if name and (ROOT / name).is_file()]


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


@pytest.mark.parametrize(
    ("package", "places"),
    [
        ("grpc", ("shedder/server/", "shedder/client/", "shedder/wire/", "shedder/v1/")),
        ("pyspark", ("spark_ingest/",)),
        ("duckdb", ("shedder/archive/", "shedder/simulation/truth.py", "spark_ingest/")),
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
