"""Metrics of the server for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shedder.errors import BadSetting
from shedder.queries.answers.database_api import Receipt
from shedder.server.metrics_listener import serve_metrics
from shedder.version import __version__
from shedder.wire.addresses import Address

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


_AUDITS = {
    "audited_coverage": (
        "shedder_audit_coverage_ratio",
        "Share of audited values whose exact value was inside of the interval.",
    ),
    "audited_answers": ("shedder_audit_answers", "Answers that were computed again, exactly."),
    "audited_values": ("shedder_audit_values", "Values in audited answers."),
    "audited_missed": ("shedder_audit_missed_values", "Of these, outside of their intervals."),
    "certified": ("shedder_audit_certified", "1: nothing speaks against the query; 0: it lost."),
}
"""What audits of a query have come to, by its key in the control table: families of their own."""


class ControlGauges(Collector):
    """Every number of the control table, read when it is scraped."""

    def __init__(self, control: Callable[[], pa.Table]) -> None:
        self._control = control

    def collect(self) -> Iterator[Metric]:
        """One gauge; entities, their names and keys are its labels. Audits are families, too."""
        gauge = GaugeMetricFamily(
            "shedder_control", "Numbers of the control table.", labels=["entity", "name", "key"]
        )
        audits = {key: GaugeMetricFamily(*of, labels=["query"]) for key, of in _AUDITS.items()}
        for row in self._control().to_pylist():
            try:
                value = float(row["value"])
            except (TypeError, ValueError):
                continue  # A text; Prometheus has no place for it.
            gauge.add_metric([row["entity"], row["name"], row["key"]], value)
            if row["entity"] == "query" and row["key"] in audits:
                audits[row["key"]].add_metric([row["name"]], value)
        yield gauge
        yield from audits.values()


class Metrics:
    """The server's own counters. Methods that it does not have are never labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.handled = Counter(
            "grpc_server_handled",
            "Calls that ended, by status code.",
            ["method", "code"],
            registry=self.registry,
        )
        self.handling = Histogram(
            "grpc_server_handling_seconds",
            "How long calls took; those that stay open are left out.",
            ["method"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        # Looking a child up by its labels takes longer than counting.
        self._handled: dict[tuple[str, str], Counter] = {}
        self._handling: dict[str, Histogram] = {}
        self.acknowledged = Counter(
            "shedder_ingest_rows",
            "Rows acknowledged.",
            ["disposition"],
            registry=self.registry,
        )
        self.ack_seconds = Histogram(
            "shedder_ingest_ack_seconds",
            "From a batch's arrival to its receipt.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "shedder_ingest_refused_batches", "Batches refused.", ["reason"], registry=self.registry
        )
        self.turned_away = Counter(
            "shedder_auth_failures", "Calls turned away.", ["reason"], registry=self.registry
        )
        self.connections_closed = Counter(
            "shedder_connections_closed",
            "Connections closed: without an identity while room was short, or that read nothing.",
            registry=self.registry,
        )
        build = Info("shedder_build", "What is running.", registry=self.registry)
        build.info({"version": __version__})

    def call(self, method: str, code: str, seconds: float | None) -> None:
        """A call ended; seconds is None for one that stays open."""
        handled = self._handled.get((method, code))
        if handled is None:
            handled = self._handled[method, code] = self.handled.labels(method, code)
        handled.inc()
        if seconds is not None:
            handling = self._handling.get(method)
            if handling is None:
                handling = self._handling[method] = self.handling.labels(method)
            handling.observe(seconds)

    def receipt(self, receipt: Receipt, seconds: float) -> None:
        """A batch was acknowledged."""
        disposition = "duplicate" if receipt.duplicate else "stored"
        self.acknowledged.labels(disposition).inc(receipt.rows)
        self.ack_seconds.observe(seconds)

    def serve(self, address: Address) -> Callable[[], None]:
        """Answer Prometheus over HTTP, on a thread; returns how to stop that.

        Raises:
          BadSetting: it cannot listen there.
        """
        try:
            return serve_metrics(self.registry, address)
        except OSError as error:
            raise BadSetting(f"cannot serve metrics on {address}: {error}") from None
