"""Rules for test modules: nothing private, no patches of this project, no sleeps, counted gates."""

from __future__ import annotations

import ast

import pytest

from tests.house_rules import (
    RULES,
    imported_tests,
    private_names,
    replacements,
    sleeps,
    unchecked_tests,
    uncounted_gates,
)
from tests.repository import ROOT, tracked


@pytest.fixture(scope="module")
def broken():
    """Lines of all files of tests that break a rule, by rule. One tree at a time is in memory."""
    found = {rule: [] for rule in RULES}
    for path in tracked("tests/*.py"):
        tree = ast.parse(path.read_text())
        for rule, check in RULES.items():
            found[rule] += [f"{path.relative_to(ROOT)}:{line}" for line in check(tree)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_no_test_has(rule, broken):
    assert not broken[rule], "\n".join(broken[rule])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("engine._core.close()", ["1: engine._core"]),
        ("from shedder.engine import _rows", ["1: _rows"]),
        ("getattr(engine, '_core')", ["1: _core"]),
        ("class Fake:\n    def _core(self): ...\nfake._core()", []),
        ("class Fake:\n    def __init__(self): self._core = 1\nfake._core", []),
        ("engine._core = 1", ["1: engine._core"]),
        ("row._replace(a=1); os._exit(1); it.__next__(); type(_)", []),
    ],
)
def test_a_private_name_is_one_that_the_file_does_not_define(text, found):
    assert private_names(ast.parse(text)) == found


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("import os\nmonkeypatch.setattr(os, 'pwrite', fail)", False),
        ("from pathlib import Path\npatch.setattr(Path, 'open', fail)", False),
        ("monkeypatch.setattr('builtins.open', fail)", False),
        ("monkeypatch.setenv('HOME', 'x')", False),
        ("import sys\nmonkeypatch.setitem(sys.modules, 'x', None)", False),
        ("from shedder.engine import engine_state as e\nmonkeypatch.setattr(e, 'LOOK_S', 1)", True),
        (
            "from shedder.engine import engine\nmonkeypatch.setattr(engine.time, 'sleep', fail)",
            True,
        ),
        ("monkeypatch.setattr('shedder.engine.engine_state.LOOK_S', 1)", True),
        ("monkeypatch.setattr(engine, 'append', fail)", True),
        ("setattr(engine, 'append', fail)", True),
        ("object.__setattr__(engine, 'append', fail)", True),
        ("from functools import partial\npartial(setattr, engine, 'append', fail)", True),
        ("patches.append((monkeypatch.setattr, engine))", True),
        ("from operator import setitem as put\nput(engine.queries, 'q', None)", True),
        ("list(map(object.__setattr__, engines, names, values))", True),
        ("from shedder.engine import engine_state\nengine_state.LOOK_S = 1", True),
        ("from unittest import mock", True),
        ("engine = Engine()\nengine.name = 1", False),
    ],
)
def test_only_the_standard_library_may_be_replaced(text, breaks):
    assert bool(replacements(ast.parse(text))) is breaks


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("from tests.archive.test_store import ingest", True),
        ("from tests.archive import test_store", True),
        ("import tests.archive.test_store as store", True),
        ("from .test_store import ingest", True),
        ("from tests.archive.power import Files", False),
        ("from shedder.simulation import test_support", False),
    ],
)
def test_an_import_of_a_test_module_is_found(text, breaks):
    assert bool(imported_tests(ast.parse(text))) is breaks


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("import time\ntime.sleep(1)", True),
        ("from time import sleep\nsleep(1)", True),
        ("import time as t\nWorld(sleep=t.sleep)", True),
        ("import time\nmonkeypatch.setattr(time, 'sleep', clock.sleep)", False),
        ("clock.sleep(1)", False),
    ],
)
def test_a_sleep_is_found(text, breaks):
    assert bool(sleeps(ast.parse(text))) is breaks


def test_a_gate_on_seeds_of_the_run_needs_its_level():
    text = """
from tests.seeds import seed
from tests.truth import RUN_ALARM, gate

def test_low(): assert held(seed("a")) >= gate(400, 0.95)
def test_level(): assert held(seed("a")) >= gate(400, 0.95, RUN_ALARM)
def test_literal(): assert held(5) >= gate(400, 0.95)
"""
    assert uncounted_gates(ast.parse(text)) == ["5: test_low"]


@pytest.mark.parametrize(
    ("body", "breaks"),
    [
        ("engine.close()", True),
        ("assert engine.close()", False),
        ("with pytest.raises(ValueError): engine.close()", False),
        ("np.testing.assert_array_equal(a, b)", False),
        ("checked(engine)", False),
        ("laws.hold(engine)", False),
        ("for each in engines: each.close()", True),
    ],
)
def test_a_test_without_assertions_is_found(body, breaks):
    text = f"from tests import laws\ndef checked(it): assert it\ndef test_a(engine): {body}"
    text = text.replace(": with", ":\n    with").replace(": for", ":\n    for")
    assert bool(unchecked_tests(ast.parse(text))) is breaks
