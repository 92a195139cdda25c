"""HTTP server for Prometheus: few connections at once; a new one ends the oldest one."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from shedder.wire.addresses import Address

CONNECTIONS_MAX = 16  # Usually one or two scrapers connect.
SILENCE_S_MAX = 10.0  # Between two received or sent bytes of an exchange.

_log = structlog.get_logger("shedder.metrics")


class _Handler(WSGIRequestHandler):
    """Handler of one request; it writes no line to stderr."""

    timeout = SILENCE_S_MAX

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base)
        """Log nothing."""


class _Listener(ThreadingMixIn, WSGIServer):
    """Has a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128  # Else a few connections at once wait a second or three.

    def __init__(self, place: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address_family = family
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []  # oldest first
        super().__init__(place, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection; end the oldest one where there are too many."""
        with self._lock:
            self._open.append(request)
            if len(self._open) > CONNECTIONS_MAX:
                with suppress(OSError):  # The client has closed it already.
                    self._open.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock, suppress(ValueError):  # It may have been ended already.
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection; most are clients that have disconnected."""
        _log.info("scrape_failed", peer=client_address[0], error=repr(sys.exc_info()[1]))


def serve_metrics(registry: CollectorRegistry, address: Address) -> Callable[[], None]:
    """Answer Prometheus over HTTP, on a thread; return how to stop that.

    Raises:
      OSError: it cannot listen there.
    """
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, place = found[0]
    listener = _Listener((str(place[0]), address.port), family)
    listener.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=listener.serve_forever, name="shedder-metrics", daemon=True)
    thread.start()

    def stop() -> None:
        listener.shutdown()
        listener.server_close()
        thread.join()

    return stop
