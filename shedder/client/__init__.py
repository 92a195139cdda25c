"""The client: the operations of the embedded engine, sent to a server.

`Client` blocks and `AsyncClient` runs on an event loop. Each operation is written once, as steps
without I/O (`steps.py`, `*_operations.py`, `append_session.py`); `drivers.py` performs the steps
over a `Connection` or an `AsyncConnection`. Producers number batches and repeat them after a lost
connection; they can also spill batches to disk, thin them, or send summaries.

May import: v1, errors, cql, streams, queries, archive, engine, wire.
"""

from __future__ import annotations

from shedder.client.aio import AsyncClient
from shedder.client.client import Client
from shedder.client.target import Pem, ServerTarget

__all__ = ["AsyncClient", "Client", "connect", "connect_async"]

TIMEOUT_S = 5.0
PATIENCE_S = 30.0


def connect(
    address: str,
    *,
    token: str | None = None,
    ca: Pem = None,
    cert: Pem = None,
    key: Pem = None,
    insecure: bool | None = None,
    timeout_s: float = TIMEOUT_S,
    patience_s: float = PATIENCE_S,
) -> Client:
    """Connect to a server.

    Args:
      address: HOST:PORT; the port may be left out.
      token: bearer token; only ever sent through TLS.
      ca: authority that signed the server's certificate (a PEM file, or its bytes); None: the
        system's.
      cert, key: own certificate and its private key, for a server that asks for one.
      insecure: plain text. None: only to this machine, when nothing above is given.
      timeout_s: for the first contact.
      patience_s: how long pushes try again when the server is gone or full.

    Raises:
      Unreachable: no server answers, or its certificate is not one that `ca` has signed.
      BadSetting: the arguments do not go together.
    """
    target = ServerTarget.of(address, token=token, ca=ca, cert=cert, key=key, insecure=insecure)
    return Client(target, timeout_s=timeout_s, patience_s=patience_s)


async def connect_async(
    address: str,
    *,
    token: str | None = None,
    ca: Pem = None,
    cert: Pem = None,
    key: Pem = None,
    insecure: bool | None = None,
    timeout_s: float = TIMEOUT_S,
    patience_s: float = PATIENCE_S,
) -> AsyncClient:
    """Connect to a server from the running event loop; as `connect` otherwise.

    Raises:
      Unreachable, BadSetting: as `connect`.
    """
    target = ServerTarget.of(address, token=token, ca=ca, cert=cert, key=key, insecure=insecure)
    client = AsyncClient(target, patience_s=patience_s)
    try:
        await client.check(timeout_s)
    except BaseException:
        await client.close()
        raise
    return client
