"""Hostile bytes for the decoder of batches: real payloads that were damaged."""

import random
import resource
import struct
import sys

import pyarrow as pa

from shedder.errors import ShedderError
from shedder.streams.batches import BatchLimits, decode, encode
from tests.streams.streams import EVERY_TYPE, every_type

ADDRESS_SPACE_BYTES = 4 << 30
EXTREMES = [0, 1, 7, 8, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63]


def good_payloads() -> list[bytes]:
    """Payloads to start from: good ones, and ones of other kinds."""
    batch = every_type(50)
    options = [
        pa.ipc.IpcWriteOptions(compression="zstd"),
        pa.ipc.IpcWriteOptions(compression="lz4"),
        pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4),
    ]
    payloads = [encode(every_type(rows)) for rows in (0, 1, 50)]
    payloads += [written(batch, option) for option in options]
    coded = batch.set_column(5, "text", batch["text"].dictionary_encode())
    payloads.append(written(coded, pa.ipc.IpcWriteOptions()))
    return payloads


def written(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def mutated(payload: bytes, draw: random.Random) -> bytes:
    """The payload after one to eight mishaps."""
    data = bytearray(payload)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        if not data:
            break
        at = draw.randrange(len(data))
        match draw.randrange(7):
            case 0 | 1:
                data[at] ^= 1 << draw.randrange(8)
            case 2:
                data[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 3:
                kind = draw.choice(("<B", "<H", "<I", "<Q"))
                size = struct.calcsize(kind)
                at -= at % size
                value = draw.choice(EXTREMES) % (1 << (8 * size))
                data[at : at + size] = struct.pack(kind, value)[: len(data) - at]
            case 4:
                del data[at : at + draw.choice((1, 8, 64, len(data)))]
            case 5:
                data[at:at] = data[draw.randrange(len(data)) :][: draw.choice((8, 64))]
            case 6:
                other = draw.randrange(len(data))
                data[at : at + 8], data[other : other + 8] = (
                    data[other : other + 8],
                    data[at : at + 8],
                )
    return bytes(data)


def attack(seed: int, inputs: int) -> None:
    """Decode mutated payloads; print how many of them were refused."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    draw = random.Random(seed)
    payloads = good_payloads()
    limits = BatchLimits(rows_max=1_000, bytes_max=1 << 20)
    refused = 0
    for number in range(inputs):
        payload = mutated(draw.choice(payloads), draw)
        print(number, file=sys.stderr)
        try:
            batch = decode(payload, EVERY_TYPE, limits)
        except ShedderError:
            refused += 1
        else:
            assert batch.num_rows <= limits.rows_max
            assert batch.nbytes <= len(payload)
            assert len(batch.to_pylist()) == batch.num_rows  # Every value can be shown.
    print(refused)
