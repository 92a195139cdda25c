"""Subplans of different queries: names that do not depend on aliases, and plans that cover others.

Source: Motwani et al. 2003, Query processing, resource management, and approximation in a data
stream management system, section 3.2 (plans that share subexpressions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from shedder.cql.expressions.expression import Column
from shedder.cql.plans.logical_plan import (
    Aggregated,
    Filter,
    Join,
    Plan,
    Project,
    RowsWindow,
    Scan,
    WindowOf,
    inputs_of,
    scans_of,
)
from shedder.cql.statements.statement import ColumnDefinition, Output


@dataclass(frozen=True, slots=True)
class Subplan:
    """A part of a query's plan, in which aliases are replaced by their places.

    aliases: of its scans in the query, left to right, each once.
    names: of columns, by those in the query.
    """

    plan: Plan
    aliases: tuple[str, ...]
    names: Mapping[str, str]


def subplan_of(plan: Plan) -> Subplan:
    """Return a plan with the alias "#n" in place of the n-th alias. No column's name begins so."""
    aliases = tuple(dict.fromkeys(scan.alias for scan in scans_of(plan)))
    places = {alias: f"#{place}" for place, alias in enumerate(aliases)}
    names = {
        name: places[scan.alias] + name[len(scan.alias) :]
        for scan in scans_of(plan)
        for name in (*(column.name for column in scan.columns), scan.time_column)
        if name is not None
    }
    for added, alias in _added_columns(plan):
        names[added] = places[alias] + added[len(alias) :]
    for alias, outputs in _reading_aliases(plan):
        place = places.setdefault(alias, f"#{len(places)}")
        names |= {name: place + name[len(alias) :] for name in outputs}
    return Subplan(_renamed(plan, names, places), aliases, names)


def _added_columns(plan: Plan) -> Iterator[tuple[str, str]]:
    """Columns that windows add for PREV, each with the alias of its window."""
    if isinstance(plan, WindowOf) and isinstance(plan.window, RowsWindow):
        alias = plan.window.numbered
        if alias is not None:
            yield from ((name, alias) for name in plan.window.added)
    for each in inputs_of(plan):
        yield from _added_columns(each)


def _reading_aliases(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Aliases that read the window of another alias, as of `with_shared_windows`, with columns."""
    if isinstance(plan, Project) and isinstance(plan.input, WindowOf):
        (scan,) = scans_of(plan.input)
        names = [
            (output.name, output.expression.name[len(scan.alias) :])
            for output in plan.outputs
            if isinstance(output.expression, Column)
        ]
        prefixes = {name.removesuffix(suffix) for name, suffix in names}
        is_renamed = len(names) == len(plan.outputs) and len(prefixes) == 1
        if is_renamed and all(name.endswith(suffix) for name, suffix in names):
            yield prefixes.pop(), [name for name, _ in names]
    for each in inputs_of(plan):
        yield from _reading_aliases(each)


def covers(wide: Plan, narrow: Plan) -> bool:
    """Return whether the rows of a plan, with fewer columns, are those of another.

    Both have aliases by place. Columns of the result are not compared: the caller looks them up.
    """
    wide, narrow = _bare(wide), _bare(narrow)
    match wide, narrow:
        case Scan(), Scan():
            known = frozenset(wide.columns)
            return replace(wide, columns=()) == replace(narrow, columns=()) and known.issuperset(
                narrow.columns
            )
        case Filter(), Filter():
            same = wide.condition == narrow.condition
            return same and covers(wide.input, narrow.input)
        case WindowOf(), WindowOf():
            same = replace(narrow, input=wide.input) == wide
            return same and covers(wide.input, narrow.input)
        case Aggregated(), Aggregated():
            same = replace(narrow, input=wide.input) == wide
            return same and covers(wide.input, narrow.input)
        case Project(), Project():
            known_outputs = frozenset(wide.outputs)
            return known_outputs.issuperset(narrow.outputs) and covers(wide.input, narrow.input)
        case Join(), Join():
            same = replace(narrow, left=wide.left, right=wide.right) == wide
            return same and covers(wide.left, narrow.left) and covers(wide.right, narrow.right)
        case _:  # DISTINCT and set operations compare whole rows.
            return wide == narrow


def _bare(plan: Plan) -> Plan:
    """Return the plan below projections that only drop columns."""
    while isinstance(plan, Project) and all(
        isinstance(output.expression, Column) and output.expression.name == output.name
        for output in plan.outputs
    ):
        plan = plan.input
    return plan


def _renamed(node: Any, names: Mapping[str, str], places: Mapping[str, str]) -> Any:
    """Return a tree of frozen dataclasses with other names of columns and aliases."""
    if isinstance(node, tuple):
        return tuple(_renamed(each, names, places) for each in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    changes = {
        field.name: _renamed(getattr(node, field.name), names, places)
        for field in fields(node)
        if field.init
    }
    match node:
        case Column() | ColumnDefinition() | Output():
            changes["name"] = names.get(node.name, node.name)
        case Scan():
            assert node.time_column is not None
            changes |= {"alias": places[node.alias], "time_column": names[node.time_column]}
        case RowsWindow():
            changes["partition"] = tuple(names.get(name, name) for name in node.partition)
            changes["numbered"] = None if node.numbered is None else places[node.numbered]
    return replace(node, **changes)
