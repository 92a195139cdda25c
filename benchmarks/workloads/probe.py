"""A client process that asks for answers and health all the time; prints how long that takes.

python -m benchmarks.workloads.probe ADDRESS SECONDS
"""

from __future__ import annotations

import json
import sys
import time

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shedder
from benchmarks.workloads.mixed import queries

PAUSE_S = 0.02


def main() -> None:
    address, seconds = sys.argv[1], float(sys.argv[2])
    invoke_ms: list[float] = []
    health_ms: list[float] = []
    thinning = 1.0
    with shedder.connect(address, insecure=True) as client, grpc.insecure_channel(address) as way:
        health = health_pb2_grpc.HealthStub(way)
        standing = [client.query(name) for name, _ in queries()]
        ends, turn = time.perf_counter() + seconds, 0
        while (began := time.perf_counter()) < ends:
            answer = standing[turn % len(standing)].answer()
            invoke_ms.append(1e3 * (time.perf_counter() - began))
            thinning = min(thinning, answer.thinning)
            began = time.perf_counter()
            health.Check(health_pb2.HealthCheckRequest())
            health_ms.append(1e3 * (time.perf_counter() - began))
            time.sleep(PAUSE_S)
            turn += 1
    print(
        json.dumps(
            {
                "invoke_p99_ms": float(np.percentile(invoke_ms, 99)),
                "health_p99_ms": float(np.percentile(health_ms, 99)),
                "asked": len(invoke_ms),
                "thinning": thinning,
            }
        )
    )


if __name__ == "__main__":
    main()
