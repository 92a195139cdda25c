"""Where the server listens and behind which credentials; what is not safe is refused."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import grpc
import structlog

from shedder.errors import BadSetting
from shedder.settings import Settings
from shedder.wire.addresses import Address, parse_address

_log = structlog.get_logger("shedder.server")


def checked_address(settings: Settings) -> Address:
    """The address to listen on, when the settings are safe for it.

    Raises:
      BadSetting: no identity would be asked for where others can reach the server.
    """
    address = parse_address(settings.listen)
    has_tls = settings.tls_cert is not None and settings.tls_key is not None
    if settings.insecure:
        if not address.is_loopback:
            raise BadSetting(
                f"--insecure listens on this machine only (127.0.0.1), not on {settings.listen}"
            )
        if settings.tls_cert or settings.tls_key or settings.tls_client_ca or settings.tokens_file:
            raise BadSetting("--insecure with certificates or tokens: leave one of them out")
    elif not has_tls:
        raise BadSetting(
            "a server needs tls_cert and tls_key (--tls-cert, --tls-key); --insecure does without, "
            "on 127.0.0.1 only"
        )
    elif settings.tokens_file is None and settings.tls_client_ca is None:
        raise BadSetting("a server needs tokens_file or tls_client_ca, to know who calls")
    return address


def check_free(address: Address) -> None:
    """Whether this could be listened on now: said before a directory is opened, not after it.

    Raises:
      BadSetting: it is in use, or not an address of this machine.
    """
    if not address.port:
        return  # A free one is taken.
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
        raise _cannot_listen(address) from None
    problems = [_binding(family, place) for family, _, _, _, place in found]
    # A name may stand for an address of IPv6, too, where there is none.
    if errno.EADDRINUSE in problems or None not in problems:
        raise _cannot_listen(address)


def _binding(family: int, place: Any) -> int | None:
    """Why nothing can be bound there; None: it can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As gRPC does.
            probe.bind(place)
    except OSError as error:
        return error.errno
    return None


def _cannot_listen(address: Address) -> BadSetting:
    return BadSetting(f"cannot listen on {address}: in use, or not an address of this machine")


def listen(server: grpc.aio.Server, settings: Settings) -> Address:
    """Bind the server.

    Returns:
      The address with the port that was taken.

    Raises:
      BadSetting: the settings are not safe, a file cannot be read, or the port is in use.
    """
    address = checked_address(settings)
    try:
        if settings.insecure:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), Certificates(settings).credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        raise _cannot_listen(address)
    return Address(address.host, port)


class Certificates:
    """The server's certificates; changed files are taken over without a restart."""

    def __init__(self, settings: Settings) -> None:
        assert settings.tls_cert is not None
        assert settings.tls_key is not None
        self._key, self._cert = settings.tls_key, settings.tls_cert
        self._client_ca = settings.tls_client_ca
        self._stamps = self._stamps_now()

    def credentials(self) -> grpc.ServerCredentials:
        """TLS, and client certificates where an authority for them is given."""
        return grpc.dynamic_ssl_server_credentials(
            self._read(), self._changed, require_client_authentication=self._client_ca is not None
        )

    def _changed(self) -> Any:
        """Called by gRPC at every handshake; None: as before."""
        try:
            stamps = self._stamps_now()
            if stamps == self._stamps:
                return None
            configuration = self._read()
        except BadSetting as error:
            _log.error("certificates_not_used", error=str(error))
            return None
        self._stamps = stamps
        _log.info("certificates_taken_over")
        return configuration

    def _read(self) -> grpc.ServerCertificateConfiguration:
        ca = None if self._client_ca is None else _bytes_of(self._client_ca)
        pair = (_bytes_of(self._key), _bytes_of(self._cert))
        return grpc.ssl_server_certificate_configuration([pair], ca)

    def _stamps_now(self) -> tuple[int, ...]:
        paths = [path for path in (self._key, self._cert, self._client_ca) if path is not None]
        try:
            return tuple(path.stat().st_mtime_ns for path in paths)
        except OSError as error:
            raise BadSetting(f"cannot read a certificate: {error}") from None


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSetting(f"cannot read {str(path)!r}: {error}") from None
