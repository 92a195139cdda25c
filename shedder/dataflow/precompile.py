"""Precompilation of the operators' kernels, before the first tuple comes.

Each kernel of this package that Python calls has one signature. So it is compiled, or loaded from
the cache on disk, when its module is imported. The kernels of `synopses` that give ids to keys are
compiled for the types they are called with.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shedder.dataflow.key_directory import KeyDirectory


def compile_operators() -> None:
    """Compile the kernels of key directories, or load them from the cache."""
    column: pa.Array[Any] = pa.array([0.0])
    directory = KeyDirectory(pa.schema([("0", pa.float64()), ("1", pa.float64())]))
    directory.assign([column, column])
    directory.find([column, column])
