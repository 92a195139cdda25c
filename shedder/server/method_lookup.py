"""Services whose methods are found by their names, call by call, and not registered with gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import grpc


class ByName:
    """Stands for a server while services are added to it.

    Of each registered method grpc.aio (1.85) keeps a future, and waits for all of them anew at each
    call: with the forty methods here, that was an eighth of what a call costs the event loop. An
    interceptor remembers what a name leads to anyway.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    @classmethod
    def of(cls, server: grpc.aio.Server) -> grpc.aio.Server:
        """What `add_..._to_server` takes."""
        return cast(grpc.aio.Server, cls(server))

    def add_generic_rpc_handlers(
        self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]
    ) -> None:
        """They are asked for a handler by name."""
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Nothing: the same methods come as generic handlers, too."""
