"""Errors of scenario files in words: the place, the value, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def explained(error: ValidationError, root: type[BaseModel]) -> str:
    """A line for each mistake."""
    return "\n".join(_line(fault, root) for fault in error.errors())


def _line(fault: Any, root: type[BaseModel]) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "extra_forbidden":
            known = _names(root, fault["loc"][:-1])
            near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            return f"scenario: no {place!r}; {hint}"
        case "missing":
            return f"scenario: {place} is missing"
        case "value_error" if not place:
            return f"scenario: {fault['msg'].removeprefix('Value error, ')}"
        case _:
            message = fault["msg"].removeprefix("Value error, ")
            return f"scenario: {place} = {fault['input']!r}: {message}"


def _names(root: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """What may stand in the table at a place."""
    model = root
    for part in place:
        if isinstance(part, str):
            model = _model(model.model_fields[part].annotation)
    return sorted(model.model_fields)


def _model(annotation: Any) -> type[BaseModel]:
    """The table that a field, or each of a list of tables, is."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    raise AssertionError(annotation)
