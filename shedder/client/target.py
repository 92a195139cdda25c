"""Target of a client: address, TLS and identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from shedder.errors import BadSetting
from shedder.wire.addresses import Address, parse_address

RECEIVE_BYTES_MAX = 64 << 20  # Of one answer; the server sends no larger ones.
SEND_BYTES_MAX = 256 << 20  # Of one batch; the server's own limit is lower and says so.

Pem = str | Path | bytes | None  # A file, or its contents as bytes.


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server and the identity that it is shown. The token is never part of a message.

    metadata: of each call, with the token; left out where this is printed.
    """

    address: Address
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        address: str,
        *,
        token: str | None,
        ca: Pem,
        cert: Pem,
        key: Pem,
        insecure: bool | None,
    ) -> ServerTarget:
        """Decide how to connect.

        Without certificates or a token, a server on this machine is spoken to in plain text
        unless `insecure` is False; everything else goes through TLS unless it is True.

        Raises:
          BadSetting: a file cannot be read, or a token would go over the wire in plain text.
        """
        parsed = parse_address(address)
        has_identity = any(part is not None for part in (token, ca, cert, key))
        if insecure is None:
            insecure = parsed.is_loopback and not has_identity
        if insecure and has_identity:
            raise BadSetting("a token or certificate is not sent in plain text; leave insecure out")
        if (cert is None) != (key is None):
            raise BadSetting("cert and key belong together; one of them is missing")
        metadata = () if token is None else (("authorization", f"Bearer {_clean(token)}"),)
        credentials = None if insecure else _tls(ca, cert, key)
        return cls(parsed, credentials, metadata)

    @property
    def options(self) -> list[tuple[str, int]]:
        """gRPC's options; those that are not its defaults have a reason."""
        options = [
            ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
            ("grpc.max_send_message_length", SEND_BYTES_MAX),
            ("grpc.http2.bdp_probe", 0),  # Else each stalled stream holds about 6 MiB.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.initial_reconnect_backoff_ms", 100),  # A restarted server is back in seconds.
            ("grpc.min_reconnect_backoff_ms", 1_000),
            ("grpc.max_reconnect_backoff_ms", 2_000),
        ]
        if self.address.is_loopback:
            options.append(("grpc.enable_http_proxy", 0))
        return options

    def channel(self) -> grpc.Channel:
        """A channel for blocking calls."""
        if self.credentials is None:
            return grpc.insecure_channel(str(self.address), self.options)
        return grpc.secure_channel(str(self.address), self.credentials, self.options)

    def aio_channel(self) -> grpc.aio.Channel:
        """A channel for the running event loop."""
        if self.credentials is None:
            return grpc.aio.insecure_channel(str(self.address), self.options)
        return grpc.aio.secure_channel(str(self.address), self.credentials, self.options)


def _tls(ca: Pem, cert: Pem, key: Pem) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(pem("ca", ca), pem("key", key), pem("cert", cert))


def pem(name: str, source: Pem) -> bytes | None:
    """What is in a PEM file.

    Raises:
      BadSetting: it cannot be read; says of which option, `name`.
    """
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise BadSetting(f"cannot read {name} {str(source)!r}: {error}") from None


def _clean(token: str) -> str:
    if not token.strip().isascii() or not token.strip().isprintable():
        raise BadSetting("the token has signs that no token has")
    return token.strip()
