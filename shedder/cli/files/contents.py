"""Contents of text files: unpacked by magic bytes, decoded, and read as UTF-8."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from shedder.errors import BadBatch

_CHUNK_BYTES = 1 << 20
_HEAD_LINES = 2  # A header and a row, which a file and its longer successor have in common.
_HEAD_BYTES_MAX = 64 << 10

_MAGIC_BYTES = 64
_REFUSED = {
    b"PK\x03\x04": "a zip archive: unzip it first (.gz, .bz2, .xz, .zst and .lz4 are read as is)",
    b"PK\x05\x06": "an empty zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it first",
    b"Rar!": "a rar archive: unpack it first",
    b"SQLite format 3\x00": "an SQLite database: export its tables as CSV",
    b"\xd0\xcf\x11\xe0": "an Office document: export it as CSV",
    b"PAR1": "Parquet: say --format parquet",
    b"ARROW1\x00\x00": "an Arrow file: write it as Parquet",
    b"ORC": "an ORC file: write it as Parquet",
    b"Obj\x01": "an Avro file: write it as Parquet",
}
# The first entry of a zip archive that is a document of Microsoft or OpenDocument.
_DOCUMENT_ENTRIES = (b"[Content_Types].xml", b"_rels/.rels", b"mimetype")
_TAR_AT = 257  # Field magic of the ustar format, of POSIX and of GNU.
_TAR_MAGICS = (b"ustar\x00", b"ustar  \x00")


class TextStream(RawIOBase):
    """Text in any encoding, read as UTF-8 without a byte order mark."""

    def __init__(self, source: IO[bytes], encoding: str, name: str) -> None:
        """Wrap the unpacked bytes of the file `name`."""
        super().__init__()
        self._source = source
        self._encoding = encoding
        self._name = name
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._ready = memoryview(b"")
        self._offset = 0
        self._lines = 0
        self._ended = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as text is decoded; 0 at the end.

        Raises:
          BadBatch: the bytes are not in the encoding, or cannot be unpacked.
        """
        while not self._ready and not self._ended:
            self._decode_more()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decode_more(self) -> None:
        try:
            chunk = self._source.read(_CHUNK_BYTES)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            raise BadBatch(f"{self._name}: cannot be unpacked: {error}") from error
        self._ended = not chunk
        is_first = self._offset == 0
        if is_first:
            if chunk[_TAR_AT:].startswith(_TAR_MAGICS):
                raise BadBatch(f"{self._name} is a tar archive: unpack it first")
            self._refuse_utf_16(chunk)
        try:
            text = self._decoder.decode(chunk, final=self._ended)
        except UnicodeDecodeError as error:
            raise BadBatch(self._undecodable(error)) from None
        except UnicodeError as error:
            raise BadBatch(f"{self._name} is not in {self._encoding}: {error}") from None
        self._offset += len(chunk)
        self._lines += chunk.count(b"\n")
        self._ready = memoryview((text.removeprefix("\ufeff") if is_first else text).encode())

    def _refuse_utf_16(self, chunk: bytes) -> None:
        """ASCII in UTF-16 is also valid UTF-8, with a NUL after each character."""
        head = chunk[:1024]
        is_marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if self._is_utf_8 and (is_marked or head.count(0) * 4 > len(head)):
            name = "utf-16" if is_marked else "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"
            raise BadBatch(
                f"{self._name}: this is not UTF-8, it looks like UTF-16: say --encoding {name}"
            )

    @property
    def _is_utf_8(self) -> bool:
        return codecs.lookup(self._encoding).name.startswith("utf-8")

    def _undecodable(self, error: UnicodeDecodeError) -> str:
        """Error positions count from the bytes that the decoder has kept from the last chunk."""
        line = self._lines + error.object.count(b"\n", 0, error.start) + 1
        value = error.object[error.start : error.start + 1].hex()
        if self._is_utf_8:
            return (
                f"{self._name}: line {line:,} is not UTF-8 (byte 0x{value}): "
                "say how the file is encoded, such as --encoding latin-1 or cp1252"
            )
        return f"{self._name}: line {line:,} is not in {self._encoding} (byte 0x{value})"


@contextmanager
def opened_text(path: Path, encoding: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a text file.

    Yields:
      text: its text in UTF-8. disk: the file on disk, whose position tells the progress.

    Raises:
      BadBatch: the file is of a kind that is not read.
    """
    if (problem := refused_kind(path)) is not None:
        raise BadBatch(f"{path.name} is {problem}")
    with path.open("rb") as disk:
        head = disk.read(_MAGIC_BYTES)
        disk.seek(0)
        source = _unpacked(disk, head)
        yield BufferedReader(TextStream(source, encoding, path.name), _CHUNK_BYTES), disk


def refused_kind(path: Path) -> str | None:
    """What a file is by its first bytes, and what to do, if text cannot be read from it."""
    with path.open("rb") as disk:
        head = disk.read(_MAGIC_BYTES)
    if head.startswith(b"PK\x03\x04") and head[30:].startswith(_DOCUMENT_ENTRIES):
        return "a spreadsheet or another document: export it as CSV"
    return next((said for magic, said in _REFUSED.items() if head.startswith(magic)), None)


class _Part(RawIOBase):
    """A text, up to a number of bytes, followed by some bytes more."""

    def __init__(self, text: IO[bytes], size_bytes_max: int, end: bytes = b"") -> None:
        super().__init__()
        self._text = text
        self._left = size_bytes_max
        self._ready = b""
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._ready:
            self._ready = self._text.read(min(len(buffer), self._left))
            self._left -= len(self._ready)
        if not self._ready:
            self._ready, self._end = self._end, b""
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def before(text: IO[bytes], size_bytes: int | None) -> IO[bytes]:
    """The first bytes of a text; None: all of them."""
    if size_bytes is None:
        return text
    return BufferedReader(_Part(text, size_bytes), _CHUNK_BYTES)


def ended(text: IO[bytes], end: bytes) -> IO[bytes]:
    """A text with some bytes after its last one."""
    return BufferedReader(_Part(text, sys.maxsize, end), _CHUNK_BYTES)


def skip_blank_lines(text: IO[bytes]) -> None:
    """Skip empty lines at the beginning of a text that `opened_text`, `before` or `after` gave."""
    while cast(BufferedReader, text).peek(1)[:1] in (b"\r", b"\n"):
        text.read(1)


def after(text: IO[bytes], offset: int, name: str, *, line_ends: bytes) -> IO[bytes]:
    """The rows of a text that begin after its first `offset` bytes.

    Args:
      line_ends: bytes that end a line.

    Raises:
      BadBatch: a row began before and ends after that offset.
    """
    if not offset:
        return text
    skipped, last = 0, b""
    while skipped < offset and (chunk := text.read(min(offset - skipped, _CHUNK_BYTES))):
        skipped += len(chunk)
        last = chunk[-1:]
    following = b"\n" if last in line_ends else text.read(1)
    while following in (b" ", b"\t"):
        following = text.read(1)
    if following not in (b"\n", b"\r", b""):
        raise BadBatch(
            f"{name}: its last line was not complete at byte {offset:,}, where the loaded part ends"
        )
    return text


def _unpacked(disk: IO[bytes], head: bytes) -> IO[bytes]:
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=disk))
    if head.startswith(b"BZh"):
        return bz2.BZ2File(disk)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(disk)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(cast(Any, disk)), "zstd"))
    if head.startswith(b"\x04\x22\x4d\x18"):
        return cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(cast(Any, disk)), "lz4"))
    return disk


@dataclass(frozen=True, slots=True)
class Digest:
    """Identity of a file's content.

    sha256: of the unpacked text in UTF-8, or of a Parquet file's bytes; hexadecimal.
    size_bytes: of the same.
    head: SHA-256 of the first row, with its header if there is one; None: the file cannot grow by
      more lines.
    other_heads: heads that earlier versions gave to the file, or to its first line alone, with and
      without its end.
    """

    sha256: str
    size_bytes: int
    head: str | None
    other_heads: tuple[str, ...] = ()


def text_digest(
    path: Path,
    encoding: str,
    size_bytes_max: int | None = None,
    *,
    may_be_array: bool = False,
    has_header: bool = True,
) -> Digest:
    """Read a text file, at most its first `size_bytes_max` bytes, and compute its digest.

    Args:
      path, encoding: of the file. size_bytes_max: None: all bytes.
      may_be_array: whether a text that begins with a bracket is a JSON array, which ends with one.
      has_header: whether the first line has the names.

    Raises:
      BadBatch: the text is not in the encoding, or of a kind that is not read.
    """
    digest, size, head = hashlib.sha256(), 0, b""
    with opened_text(path, encoding) as (text, _):
        while chunk := text.read(_CHUNK_BYTES):
            if size_bytes_max is not None:
                chunk = chunk[: size_bytes_max - size]
            if not chunk:
                break
            if len(head) < _HEAD_BYTES_MAX:
                head += chunk[: _HEAD_BYTES_MAX - len(head)]
            digest.update(chunk)
            size += len(chunk)
    if may_be_array and head.lstrip().startswith(b"["):
        return Digest(digest.hexdigest(), size, None)
    lines = head.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]
    begins = [b"\n".join(lines)]
    if len(lines) > 1 and lines[1]:
        begins += [lines[0] + b"\n", lines[0]]
    # The last line may have had no end yet: a carriage return is not part of it.
    end = _line_end(head.lstrip())
    rows = head.lstrip().split(end, _HEAD_LINES)[: _HEAD_LINES if has_header else 1]
    row = end.join(rows).rstrip(b"\r")
    heads = dict.fromkeys([row, *begins])
    first, *others = (hashlib.sha256(each).hexdigest() for each in heads)
    return Digest(digest.hexdigest(), size, first, tuple(others))


def _line_end(head: bytes) -> bytes:
    """The byte that ends the first line; a carriage return alone may do so, in old CSV files."""
    found = re.search(rb"\n|\r(?!\n)", head)
    return found[0] if found else b"\n"


def binary_digest(path: Path) -> Digest:
    """Compute the digest of a file's bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Digest(digest.hexdigest(), file.tell(), None)
