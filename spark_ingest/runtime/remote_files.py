"""Places as Spark names them, opened by Arrow: on executors, without the JVM."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs

from shedder.errors import BadSetting

_AS_ARROW_SAYS = {"s3a": "s3", "s3n": "s3"}
_KNOWN = ("file:", "s3a:", "gs:", "abfss:", "hdfs:")
_KEPT = "/:@"  # In a URI's authority and path; other characters are written as their codes.


def opened(place: str) -> tuple[Any, str]:
    """The file system that a place is on, and its path there.

    Args:
      place: a path, or a URI as Hadoop writes them: file:/tmp/x, s3a://bucket/x, hdfs://host/x.

    Raises:
      BadSetting: no file system is known by this name, or it cannot be reached by it.
    """
    scheme, rest = _parts(place)
    if scheme == "file":
        return pafs.LocalFileSystem(), rest
    try:
        return pafs.FileSystem.from_uri(f"{scheme}:{rest}")
    except (pa.ArrowException, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise BadSetting(
            f"{place!r} is on no file system that Arrow opens ({problem}); it has to be one that "
            f"driver and executors reach by a path, or by {', '.join(_KNOWN)}. What only Spark "
            "knows (dbfs: and such) is reached by where it is mounted (/dbfs/...)"
        ) from None


def escaped(name: str) -> str:
    """A file's name as Spark lists it, with all characters as they are, as a place to open."""
    scheme, rest = _parts(name)
    return rest if scheme == "file" else f"{scheme}:{quote(rest, safe=_KEPT)}"


def _parts(place: str) -> tuple[str, str]:
    scheme, colon, rest = place.partition(":")
    if not colon or "/" in scheme:
        return "file", place
    if scheme == "file":
        return "file", "/" + rest.lstrip("/")
    return _AS_ARROW_SAYS.get(scheme, scheme), rest
