"""What a refusal costs the server, by whether the call declares its batch."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

import shedder
from benchmarks.measure import Report
from benchmarks.overload import on_core
from benchmarks.workloads.flood import METHOD
from benchmarks.workloads.served import ServedProcess, server
from benchmarks.workloads.trades import CREATE, SCHEMA
from shedder.client.target import ServerTarget
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.streams.batches import encode
from shedder.v1.ingest_pb2 import AppendRequest, Batch
from shedder.wire.append_metadata import declared_metadata

ROWS = (2_730, 43_690, 349_525)  # Of 24 bytes: 64 KiB, 1 MiB, 8 MiB.
CALLS = (400, 400, 100)
IN_FLIGHT = 8


def run() -> Report:
    """Calls over a quota, of batches of three sizes."""
    with on_core(0):
        serving = server()
        running = serving.__enter__()
    rows = []
    try:
        with shedder.connect(running.address, insecure=True) as client, on_core(1):
            client.execute(CREATE)
            client.set_control("tenant", DEFAULT_TENANT, "rows_per_s", "1")
            client.push("trades", pa.Table.from_batches([_batch(1_000)]))  # In debt from here on.
            for count, calls in zip(ROWS, CALLS, strict=True):
                plain, declared = (
                    _cpu_us(running, count, calls, declares=declares) for declares in (False, True)
                )
                size = len(encode(_batch(count)))
                rows.append(
                    [
                        f"{size / (1 << 20):.2g} MiB",
                        f"{plain:,.0f}",
                        f"{declared:,.0f}",
                        f"{plain / declared:.1f}",
                    ]
                )
    finally:
        serving.__exit__(None, None, None)
    return Report(
        claim="A call that declares its batch is refused before the batch is received, so that a "
        "refusal costs the same whatever the batch's size.",
        columns=["batch", "received and refused, us of CPU", "declared and refused", "ratio"],
        rows=rows,
        notes=[
            (
                f"CPU of the server's process per refused call of `Append`, {IN_FLIGHT} in flight; "
                "the server on one core, the client on the other."
            ),
            "Neither is decoded. What the kernel does on the client's core is in none of them.",
        ],
    )


def _cpu_us(running: ServedProcess, rows: int, calls: int, *, declares: bool) -> float:
    asyncio.run(_refused(running.address, rows, calls // 4, declares=declares))
    before = running.process.cpu_times()
    asyncio.run(_refused(running.address, rows, calls, declares=declares))
    after = running.process.cpu_times()
    return 1e6 * (after.user + after.system - before.user - before.system) / calls


async def _refused(address: str, rows: int, calls: int, *, declares: bool) -> None:
    arrow = encode(_batch(rows))
    request = AppendRequest(stream="trades", batch=Batch(rows=rows, arrow=arrow))
    data = request.SerializeToString()
    metadata = [declared_metadata("trades", rows, len(arrow))] if declares else []
    left = iter(range(calls))
    target = ServerTarget.of(address, token=None, ca=None, cert=None, key=None, insecure=True)
    async with target.aio_channel() as channel:
        append = channel.unary_unary(METHOD, bytes, bytes)

        async def send() -> None:
            for _ in left:
                try:
                    await append(data, metadata=metadata)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                else:
                    raise RuntimeError("a batch over the quota was taken")

        await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))


def _batch(rows: int) -> pa.RecordBatch:
    rng = np.random.default_rng(7)
    columns: list[Any] = [
        pa.array(np.arange(rows), pa.timestamp("us")),
        pa.array(rng.integers(0, 1_000, rows)),
        pa.array(rng.lognormal(3, 1, rows)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
