"""Generates shedder/v1 from the .proto files beside this script: `python proto/generate.py`.

The generated modules are committed, so that an installation needs no compiler; a test runs this
into another directory and compares.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = Path("shedder/v1")
DOCSTRING = '"""Generated from proto/shedder/v1 by proto/generate.py: do not edit."""\n'


def generate(into: Path) -> list[Path]:
    """Write the package shedder/v1 below a directory.

    Returns:
      The files, sorted.

    Raises:
      CalledProcessError: the compiler refused the sources; it has said why on stderr.
    """
    into.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(path.relative_to(HERE)) for path in (HERE / PACKAGE).glob("*.proto"))
    well_known = files("grpc_tools") / "_proto"
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    plugin_grpc = plugin.with_name("protoc-gen-mypy_grpc")
    # In a process of its own: beside other C++ libraries in one process, the compiler was seen to
    # abort, and to grow to 12 GB.
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--plugin=protoc-gen-mypy={plugin}",
        f"--plugin=protoc-gen-mypy_grpc={plugin_grpc}",
        f"--proto_path={HERE}",
        f"--proto_path={well_known}",
        f"--python_out={into}",
        f"--grpc_python_out={into}",
        f"--mypy_out=quiet:{into}",
        f"--mypy_grpc_out=quiet:{into}",
        *sources,
    ]
    subprocess.run(command, check=True)  # noqa: S603  (our own command)
    package = into / PACKAGE
    (package / "__init__.py").write_text(DOCSTRING)
    return sorted(path for path in package.iterdir() if path.suffix in (".py", ".pyi"))


if __name__ == "__main__":
    for written in generate(HERE.parent):
        print(written.relative_to(HERE.parent))
