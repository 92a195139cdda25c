"""CRC-32C of bytes, computed without a copy."""

from __future__ import annotations

import google_crc32c
import pyarrow as pa

from shedder.archive.files.file_system import Bytes


def checksum(data: Bytes, crc: int = 0) -> int:
    """CRC-32C of data, continued from crc, without a copy (about 25 GB/s)."""
    if isinstance(data, (memoryview, bytearray)):
        data = pa.py_buffer(data)  # google_crc32c takes read-only buffers only
    return int(google_crc32c.extend(crc, data))
