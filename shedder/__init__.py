"""Shedder: approximate answers about fast streams, with intervals that hold, in a fixed budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shedder.gc_tuning import loading
from shedder.version import __version__

if TYPE_CHECKING:
    from shedder.client import Client
    from shedder.engine.engine import Engine
    from shedder.settings import Settings

__all__ = ["__version__", "connect", "open"]


def open(  # noqa: A001 - the word that users expect of an embedded database
    directory: str | Path, settings: Settings | None = None, **overrides: Any
) -> Engine:
    """Open a data directory in this process; made when missing.

    Args:
      directory: where log, runs and catalog are.
      settings: all options; read from the environment when None.
      overrides: single options, as `memory_bytes=4 << 30`; see docs/settings.md.

    Raises:
      DirectoryLocked: another process has it open.
      NewerFormat: a newer version wrote it.
      BadSetting: an option has no possible value.
    """
    with loading():
        from shedder.engine.engine import Engine

    return Engine.open(directory, settings, **overrides)


def connect(address: str, **options: Any) -> Client:
    """Connect to a server; the object speaks the same words as that of `open`.

    Args:
      address: HOST:PORT.
      options: token, ca, cert, key, insecure; see `shedder.client.connect`.
    """
    with loading():
        from shedder.client import connect as _connect

    return _connect(address, **options)
