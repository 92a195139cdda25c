"""Rules for the code of tests; each rule finds the lines of a syntax tree that break it.

found = private_names(ast.parse(text))  # ["12: engine._core"]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeGuard

Rule = Callable[[ast.Module], "list[str]"]

# Public names of named tuples and of `os` that begin with an underscore.
PUBLIC = frozenset({"_asdict", "_exit", "_fields", "_make", "_replace"})
# Attributes of objects of other libraries, which have no method that would set them:
# `weakref.finalize` has `atexit`, `pyspark.SparkContext` has `_gateway` and `_jvm`. The flags of a
# numpy array have `writeable`.
LIBRARY_ATTRIBUTES = frozenset({"atexit", "writeable", "_gateway", "_jvm"})
# Methods that other libraries call: of files, of imports, of a prompt, of servers and of settings.
LIBRARY_METHODS = frozenset(
    {
        "add_registered_method_handlers",
        "find_spec",
        "get_completions",
        "handle_error",
        "log_message",
        "readinto",
        "seekable",
        "settings_customise_sources",
        "writable",
    }
)
REPLACING = frozenset({"setattr", "delattr", "setitem", "delitem"})


@lru_cache(maxsize=1)
def nodes(tree: ast.Module) -> list[ast.AST]:
    """List the nodes of a tree; all rules for a file read one list."""
    return list(ast.walk(tree))


def private_names(tree: ast.Module) -> list[str]:
    """Find private names that are imported, or read from an object and not defined in this file."""
    own = set(_defined(tree))
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            found += [_line(node, alias.name) for alias in node.names if _is_private(alias.name)]
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            found.append(_line(node, ast.unparse(node)))
        elif _called(node) in {"getattr", "hasattr", "attrgetter"}:
            found += [
                _line(node, argument.value)
                for argument in _arguments(node)
                if isinstance(argument, ast.Constant)
                and isinstance(argument.value, str)
                and _is_private(argument.value)
                and argument.value not in own
            ]
    return found


def replacements(tree: ast.Module) -> list[str]:
    """Find attributes and items that are replaced outside the standard library.

    A function that replaces and is not called here (`partial(setattr, engine, ...)`) breaks the
    rule, too: the rule cannot see what the function is called with.
    """
    sources = _sources(tree)
    found = []
    called = {id(node.func) for node in nodes(tree) if isinstance(node, ast.Call)}
    for node in nodes(tree):
        if isinstance(node, ast.Call) and _called(node) in REPLACING:
            if not node.args or not _is_of_library(node.args[0], sources):
                found.append(_line(node, ast.unparse(node)))
        elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in called:
            if _last_name(node) in REPLACING | {"__setattr__", "__delattr__"}:
                found.append(_line(node, ast.unparse(node)))
        elif _called(node) in {"patch", "__setattr__"} or _is_mock(node) or _renames(node):
            found.append(_line(node, ast.unparse(node)))
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [
                _line(node, ast.unparse(target))
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(base := _base(target), ast.Name)
                and base.id in sources
                and not _is_of_library(target, sources)
            ]
    return found


def imported_tests(tree: ast.Module) -> list[str]:
    """Find imports of test modules."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = "tests." if node.level else ""
            names = [f"{package}{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [_line(node, name) for name in names if re.match(r"tests\..*\btest_", name)]
    return found


def sleeps(tree: ast.Module) -> list[str]:
    """Find uses of `time.sleep`."""
    sources = _sources(tree)
    if not {"time", "time.sleep"} & set(sources.values()):
        return []
    return [
        _line(node, ast.unparse(node))
        for node in nodes(tree)
        if isinstance(node, ast.Attribute | ast.Name) and _dotted(node, sources) == "time.sleep"
    ]


def uncounted_gates(tree: ast.Module) -> list[str]:
    """Find functions that draw seeds of the run and give `gate` no level (tests/truth.py)."""
    sources, found = _sources(tree), list[str]()
    if not any(source.startswith("tests.seeds") for source in sources.values()):
        return found
    for function in nodes(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = [(_dotted(call.func, sources), call) for call in calls]
        if any(name in {"tests.seeds.seed", "tests.seeds.seeds"} for name, _ in names):
            found += [
                _line(call, function.name)
                for name, call in names
                if name == "tests.truth.gate" and len(_arguments(call)) < 3
            ]
    return found


def foreign_assignments(tree: ast.Module) -> list[str]:
    """Find assignments to attributes of objects that the function was given or has looked up.

    A function may set attributes of `self`, of `cls`, of what it has constructed, those that a
    class of the same module declares, and those of protobuf messages and of other libraries.
    """
    found = set[str]()
    if not any(map(_is_set_on_other, nodes(tree))):
        return []
    declared = {name for node in nodes(tree) for name in _declared(node)} | LIBRARY_ATTRIBUTES
    functions = [n for n in nodes(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        inner = list(ast.walk(function))
        stores = [node for node in inner if _is_set_on_other(node) and node.attr not in declared]
        if not stores:
            continue
        own = {"self", "cls", *(name for node in inner for name in _made(node))}
        messages = {name for node in inner for name in _messages(node)}
        for node in stores:
            is_own = isinstance(node.value, ast.Name) and node.value.id in own
            base = _base(node)
            is_own |= isinstance(base, ast.Name) and base.id in messages
            if not is_own:
                found.add(_line(node, ast.unparse(node)))
    return sorted(found)


def definitions(tree: ast.Module) -> set[str]:
    """Find public names that the rest of the module does not read, and methods as `Class.method`.

    A decorator with arguments may register a function, as one of a command does: it is left out.
    """
    found = set[str]()
    reads = Counter(node.id for node in nodes(tree) if _is_read(node))
    for node in tree.body:
        inner = Counter(each.id for each in ast.walk(node) if _is_read(each))
        match node:
            case ast.ClassDef(name=name, body=body):
                methods = [each.name for each in body if isinstance(each, ast.FunctionDef)]
                found |= {f"{name}.{method}" for method in methods if not method.startswith("_")}
                names = [name]
            case ast.FunctionDef(name=name, decorator_list=decorators):
                names = [] if any(isinstance(each, ast.Call) for each in decorators) else [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        found |= {name for name in names if name[0] != "_" and reads[name] == inner[name]}
    return found


def attribute_reads(tree: ast.Module) -> set[str]:
    """Find attributes that a module reads; those of imported names also by their full names."""
    sources = _sources(tree)
    found = set[str]()
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found |= {node.attr, _dotted(node, sources) or node.attr}
        elif isinstance(node, ast.MatchClass):
            found |= set(node.kwd_attrs)
    return found


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


# Words that no identifier has, with terms that say what it is. Prose may use them.
RETIRED: Mapping[str, str] = {
    "TOLD": "on_progress, update, report, message",
    "ASKED": "request, query, requested, trials",
    "NEWS": "update, hashes, a key of changes",
    "LENT": "ticket, lease",
    "LACKS": "missing",
    "NOBODY": "NO_PRODUCERS, unnamed, unknown",
    "OWED": "expected_rows, pending",
    "OWES": "has_rows_to_follow",
}
_LETTERS = "|".join(f"{word}|{word.title()}|{word.lower()}" for word in RETIRED)
_RETIRED = re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))({_LETTERS})(?![a-z])")
# Names of the wire, which never change.
WIRE_NAMES = frozenset({"asked_min", "asked_max", "owed_rows", "LentAnswer"})


def retired_names(tree: ast.Module) -> list[str]:
    """Identifiers with a word of RETIRED; names of tests are sentences, and may have them."""
    return [
        _line(node, f"{name}: {RETIRED[found[1].upper()]}")
        for node in nodes(tree)
        if (name := _identifier(node))
        and (found := _RETIRED.search(name))
        and name not in WIRE_NAMES
    ]


def _identifier(node: ast.AST) -> str | None:
    """Return the name that a node defines, reads or passes; None: it has none, or is a test."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return None if name.startswith("test_") else name
        case ast.ClassDef(name=name) | ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.arg(arg=name) | ast.keyword(arg=name) | ast.alias(asname=name):
            return name
        case ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case _:
            return None


def unchecked_tests(tree: ast.Module) -> list[str]:
    """Find tests without `assert` that call nothing which could have one.

    Functions of the same file and of other modules of tests may assert, and so may those of
    `numpy.testing`.
    """
    sources, functions = (
        _sources(tree),
        [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)],
    )
    helpers = {each.name for each in functions if not each.name.startswith("test")}
    helpers |= {node.name for node in nodes(tree) if isinstance(node, ast.ClassDef)}
    helpers |= {name for name, source in sources.items() if source.startswith("tests")}
    return [
        _line(each, each.name)
        for each in functions
        if each.name.startswith("test") and not any(map(_may_fail(helpers), ast.walk(each)))
    ]


def _may_fail(helpers: set[str]) -> Callable[[ast.AST], bool]:
    """Return whether a node fails a test on purpose, or uses one of some helpers."""

    def may_fail(node: ast.AST) -> bool:
        match node:
            case ast.Assert() | ast.Raise():
                return True
            case ast.Attribute(attr=name):
                return name in {"raises", "warns", "fail"} or name.startswith("assert")
            case ast.Name(id=name) | ast.arg(arg=name):
                return name in helpers
        return False

    return may_fail


RULES: Mapping[str, Rule] = {
    "private names of other modules": private_names,
    "replacements of code that is not of the standard library": replacements,
    "imports of test modules": imported_tests,
    "uses of time.sleep": sleeps,
    "gates on seeds of the run without RUN_ALARM": uncounted_gates,
    "retired words in identifiers": retired_names,
    "assertions missing": unchecked_tests,
}


def _line(node: ast.AST, text: str) -> str:
    return f"{getattr(node, 'lineno', 0)}: {text}"


def _declared(node: ast.AST) -> Iterator[str]:
    """Attributes that a class declares: by an annotation, or by setting them on `self`."""
    if isinstance(node, ast.ClassDef):
        for each in ast.walk(node):
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.target.id
            elif _is_set_on_self(each):
                yield each.attr


def _made(node: ast.AST) -> Iterator[str]:
    """Names that an assignment gives to a new object, perhaps only if something holds."""
    if isinstance(node, ast.Assign):
        value = node.value.orelse if isinstance(node.value, ast.IfExp) else node.value
        if isinstance(value, ast.Call) and _constructs(value.func):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _constructs(function: ast.expr) -> bool:
    """Return whether a class is called, one of its methods, or what a factory has returned."""
    if isinstance(function, ast.Call):
        return True
    return any(
        name == "cls" or name.lstrip("_")[:1].isupper()
        for name in ast.unparse(function).split(".")[-2:]
    )


def _messages(node: ast.AST) -> Iterator[str]:
    """Names of protobuf messages: annotated as a class of a `_pb2` module, or made from one."""
    if isinstance(node, ast.arg) and node.annotation and _is_message(node.annotation):
        yield node.arg
    elif isinstance(node, ast.AnnAssign) and _is_message(node.annotation):
        yield ast.unparse(node.target)
    elif _called_message(node):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _called_message(node: ast.AST) -> TypeGuard[ast.Assign]:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _is_message(node.value.func)
    )


def _is_message(kind: ast.expr) -> bool:
    return re.match(r"\w+_pb2\.\w+$", ast.unparse(kind)) is not None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_" and name not in PUBLIC


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the functions, classes, variables and attributes of `self` that a file defines."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif _is_set_on_self(node):
            yield node.attr


def _is_set_on_other(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    )


def _is_set_on_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _sources(tree: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name: `{"sleep": "time.sleep", "np": "numpy"}`."""
    found = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _base(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _dotted(node: ast.expr, sources: Mapping[str, str]) -> str | None:
    """Return the full dotted name of an expression that begins with an imported name."""
    base = _base(node)
    if not isinstance(base, ast.Name) or base.id not in sources:
        return None
    return sources[base.id] + ast.unparse(node).removeprefix(base.id)


def _is_of_library(target: ast.expr, sources: Mapping[str, str]) -> bool:
    if isinstance(target, ast.Constant):
        name: object = target.value
    else:
        name = _dotted(target, sources)
    return isinstance(name, str) and name.partition(".")[0] in sys.stdlib_module_names


def _called(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _renames(node: ast.AST) -> bool:
    """Whether a function that replaces is imported, under its own name or another one."""
    return isinstance(node, ast.ImportFrom) and any(it.name in REPLACING for it in node.names)


def _is_mock(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unittest")


def _arguments(node: ast.AST) -> list[ast.expr]:
    if not isinstance(node, ast.Call):
        return []
    return [*node.args, *(keyword.value for keyword in node.keywords)]
