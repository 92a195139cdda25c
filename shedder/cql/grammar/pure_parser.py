"""sqlglot's parser as Python, also where the compiled one is installed.

Compiled classes cannot have subclasses in Python, so a dialect of one's own needs the source, which
is installed beside the compiled module. It is also the safer one: where the compiled parser runs
over the end of the C stack, Python raises RecursionError.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import sqlglot.parser


def _pure_parser() -> ModuleType:
    """Return the module `sqlglot.parser`, not compiled."""
    installed = sqlglot.parser
    if Path(installed.__file__).suffix == ".py":
        return installed
    source = Path(sqlglot.__file__).with_name("parser.py")
    spec = spec_from_file_location("shedder.cql.sqlglot_parser", source)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    Parser: TypeAlias = sqlglot.parser.Parser
else:
    Parser = _pure_parser().Parser
