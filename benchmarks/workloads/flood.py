"""A client process that sends trades at a rate, whatever becomes of them; prints what did.

python -m benchmarks.workloads.flood ADDRESS TUPLES_PER_S SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

import grpc
import numpy as np
import pyarrow as pa

from benchmarks.workloads.trades import KEYS, SCHEMA
from shedder.client.target import ServerTarget
from shedder.streams.batches import encode
from shedder.v1.ingest_pb2 import AppendRequest, AppendResponse, Batch
from shedder.wire.append_metadata import declared_metadata
from shedder.wire.malloc_tuning import keep_big_blocks

ROWS = 16_384
IN_FLIGHT_MAX = 128  # More calls than that are not made, and counted as refused.
TEMPLATES = 8
Sent = dict[str, float]
METHOD = "/shedder.v1.Ingest/Append"


class Templates:
    """Requests that are ready but for their event times.

    declared: of each, for the metadata of its call.
    """

    def __init__(self, stream: str = "trades", rows: int = ROWS) -> None:
        rng = np.random.default_rng(7)
        self._stream, self.rows = stream, rows
        self.declared: tuple[tuple[str, str | bytes], ...] = ()
        self._made = [self._make(rng) for _ in range(TEMPLATES)]
        self._next = 0

    def _make(self, rng: np.random.Generator) -> tuple[bytes, int]:
        rows = self.rows
        marks = rng.integers(1 << 48, 1 << 49, rows)  # Found again in the bytes.
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(marks, pa.timestamp("us")),
                pa.array((rng.zipf(1.2, rows) % KEYS).astype(np.int64)),
                pa.array(rng.lognormal(3, 1, rows)),
            ],
            schema=SCHEMA,
        )
        arrow = encode(batch)
        self.declared = (declared_metadata(self._stream, rows, len(arrow)),)  # All alike.
        message = AppendRequest(stream=self._stream, batch=Batch(rows=rows, arrow=arrow))
        request = message.SerializeToString()
        return request, request.index(marks.tobytes())

    def at(self, time_us: int, step_us: float) -> bytes:
        """A request whose first tuple is of this time, and the others follow."""
        self._next = (self._next + 1) % TEMPLATES
        request, offset = self._made[self._next]
        times = time_us + (np.arange(self.rows) * step_us).astype(np.int64)
        return b"".join((request[:offset], times.tobytes(), request[offset + 8 * self.rows :]))


async def flood(target: ServerTarget, rate: float, seconds: float, templates: Templates) -> Sent:
    """Send at this rate, on time or as soon as can be; nothing is sent twice."""
    keep_big_blocks()
    rows = templates.rows
    found, acked_ms = Counter[str](), list[float]()
    metadata = (*target.metadata, *templates.declared)
    async with target.aio_channel() as channel:
        append = channel.unary_unary(METHOD, bytes, AppendResponse.FromString)

        async def send() -> None:
            request = templates.at(time.time_ns() // 1_000, 1e6 / rate)
            began = time.perf_counter()
            try:
                await append(request, timeout=30.0, metadata=metadata)
            except grpc.RpcError as error:
                found[error.code().name] += 1
            else:
                found["acknowledged"] += 1
                acked_ms.append(1e3 * (time.perf_counter() - began))

        calls: set[asyncio.Task[None]] = set()
        began_at_s = time.time()
        began, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - began) < seconds:
            due = int(now * rate / rows) - sent
            for _ in range(due):
                if len(calls) < IN_FLIGHT_MAX:
                    call = asyncio.create_task(send())
                    calls.add(call)
                    call.add_done_callback(calls.discard)
                    await asyncio.sleep(0)
                else:
                    found["not sent"] += 1
                sent += 1
            await asyncio.sleep(0.002)
        in_time = found["acknowledged"]
        await asyncio.gather(*calls)
    latency = np.percentile(acked_ms or [float("nan")], [50, 99])
    return {
        "began_at_s": began_at_s,
        "offered_per_s": sent * rows / seconds,
        "acknowledged_per_s": in_time * rows / seconds,
        "p50_ms": float(latency[0]),
        "p99_ms": float(latency[1]),
        **{name: float(count) for name, count in found.items()},
    }


def main() -> None:
    address, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    target = ServerTarget.of(address, token=None, ca=None, cert=None, key=None, insecure=True)
    print(json.dumps(asyncio.run(flood(target, rate, seconds, Templates()))))


if __name__ == "__main__":
    main()
