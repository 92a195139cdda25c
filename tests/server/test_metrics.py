"""Gauges are the control table's numbers; what audits came to has names of its own."""

import math
import socket
import urllib.request
from contextlib import ExitStack

import pyarrow as pa
from prometheus_client import CollectorRegistry

from shedder.queries.certification.certification import AuditSample, Certification, after, facts_of
from shedder.server.metrics import ControlGauges, Metrics
from shedder.server.metrics_listener import CONNECTIONS_MAX
from shedder.wire.addresses import Address


def control(certifications: dict[str, Certification]) -> pa.Table:
    rows = [
        {"entity": "query", "name": name, "key": key, "value": value}
        for name, each in certifications.items()
        for key, value in facts_of(each).items()
    ]
    return pa.Table.from_pylist(rows)


def test_coverage_is_a_family_with_a_value_per_query_that_was_audited():
    held = after(Certification(), AuditSample(40, 1, 40, 1, 0.05))
    broken = after(Certification(), AuditSample(10, 10, 0, 0, 0.05, refuted="n was wrong"))
    table = control({"held": held, "broken": broken, "new": Certification()})
    registry = CollectorRegistry()
    registry.register(ControlGauges(lambda: table))

    def read(family: str, query: str) -> float | None:
        return registry.get_sample_value(family, {"query": query})

    assert math.isclose(read("shedder_audit_coverage_ratio", "held") or 0, 39 / 40)
    assert read("shedder_audit_coverage_ratio", "broken") == 0
    assert read("shedder_audit_coverage_ratio", "new") is None
    assert read("shedder_audit_certified", "held") == 1
    assert read("shedder_audit_certified", "broken") == 0
    assert read("shedder_audit_certified", "new") is None
    assert read("shedder_audit_missed_values", "held") == 1
    assert read("shedder_audit_values", "broken") == 10
    assert read("shedder_audit_answers", "new") == 0


def test_idle_connections_do_not_keep_a_scraper_out():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = Address("127.0.0.1", free.getsockname()[1])
    stop = Metrics().serve(address)
    try:
        with ExitStack() as stack:
            place = (address.host, address.port)
            idle = [
                stack.enter_context(socket.create_connection(place, timeout=60.0))
                for _ in range(CONNECTIONS_MAX + 3)
            ]
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60.0) as response:
                assert b"shedder_build_info" in response.read()
            assert idle[0].recv(1) == b""  # The oldest was ended.
            idle[-1].sendall(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert idle[-1].recv(9) == b"HTTP/1.0 "
    finally:
        stop()
