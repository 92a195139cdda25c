"""A client process that asks EXPLAIN of large statements; prints how many were answered.

python -m benchmarks.workloads.explain ADDRESS CLIENTS SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time

import grpc

from shedder.client.target import ServerTarget
from shedder.v1.query_pb2 import ExecuteRequest, ExecuteResponse

METHOD = "/shedder.v1.Query/Execute"
TERMS = 220  # Four nodes of the syntax tree each.


def text_of(number: int) -> str:
    """A statement of about 900 nodes; another one for each number."""
    terms = " OR ".join(f"(key = {number + term})" for term in range(TERMS))
    return f"EXPLAIN SELECT COUNT(*) AS n FROM trades WHERE {terms}"


async def explain(target: ServerTarget, clients: int, seconds: float) -> int:
    """Ask one statement after the other, each client one at a time."""
    ends_s, answered = time.perf_counter() + seconds, 0

    async def client(first: int) -> None:
        nonlocal answered
        number = first
        async with target.aio_channel() as channel:
            execute = channel.unary_stream(
                METHOD, ExecuteRequest.SerializeToString, ExecuteResponse.FromString
            )
            while (left_s := ends_s - time.perf_counter()) > 0:
                number += 1
                call = execute(
                    ExecuteRequest(sql=text_of(number)), timeout=left_s, metadata=target.metadata
                )
                try:
                    async for _ in call:
                        answered += 1
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                        raise

    await asyncio.gather(*(client(1_000_000 * number) for number in range(clients)))
    return answered


def main() -> None:
    address, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    target = ServerTarget.of(address, token=None, ca=None, cert=None, key=None, insecure=True)
    print(asyncio.run(explain(target, clients, seconds)))


if __name__ == "__main__":
    main()
