"""Files of unknown origin in a data directory: they are moved into quarantine, never removed."""

from __future__ import annotations

from pathlib import Path

import structlog

from shedder.archive.files.file_system import Files, unused

UNKNOWN = "unknown-"
"""Begins the name of such a file in `quarantine/`; its path follows, with dashes for slashes."""

_log = structlog.get_logger("shedder.archive")


def keep_unknown(files: Files, directory: Path, relative: str) -> Path:
    """Move a file of unknown origin into quarantine, and say so in the log.

    Args:
      files: the file system.
      directory: the data directory.
      relative: the file's path in the directory.

    Returns:
      where the file is now.

    Raises:
      OSError.
    """
    quarantine = directory / "quarantine"
    files.make_directory(quarantine)
    kept = unused(files, quarantine / (UNKNOWN + relative.replace("/", "-")))
    files.rename(directory / relative, kept)
    files.sync_directory(quarantine)
    _log.warning("unknown_file_quarantined", file=relative, kept=str(kept))
    return kept
