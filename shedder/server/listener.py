"""Listener of the server: address and credentials; unsafe combinations are refused."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import structlog

from shedder.archive.files.file_system import DESCRIPTOR_ERRNOS
from shedder.errors import BadSetting, ResourcesShort
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
        raise BadSetting("a server needs tokens_file or tls_client_ca, to identify its callers")
    return address


def check_free(address: Address) -> None:
    """Check that the address is free, before a directory is opened.

    Raises:
      BadSetting: it is in use, or not an address of this machine.
      ResourcesShort: there are too many open files.
    """
    if not address.port:
        return  # A free one is taken.
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
        raise _cannot_listen(address) from None
    problems = [_binding(family, place) for family, _, _, _, place in found]
    if problem := DESCRIPTOR_ERRNOS.intersection(problems):
        raise ResourcesShort(f"cannot listen on {address}: {os.strerror(min(problem))} (ulimit -n)")
    # A name may stand for an address of IPv6, too, where there is none.
    if errno.EADDRINUSE in problems or None not in problems:
        raise _cannot_listen(address)


def _binding(family: int, place: Any) -> int | None:
    """Return why nothing can be bound there; None: it can."""
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
        """Read the files.

        Raises:
          BadSetting: a file cannot be read, is empty or broken, or key and certificate differ.
        """
        cert, key = _bytes_of("tls_cert", self._cert), _bytes_of("tls_key", self._key)
        _check_certificates("tls_cert", self._cert, cert)
        _check_key(self._cert, self._key)
        ca = None
        if self._client_ca is not None:
            ca = _bytes_of("tls_client_ca", self._client_ca)
            _check_certificates("tls_client_ca", self._client_ca, ca)
        return grpc.ssl_server_certificate_configuration([(key, cert)], ca)

    def _stamps_now(self) -> tuple[int, ...]:
        named = {"tls_cert": self._cert, "tls_key": self._key, "tls_client_ca": self._client_ca}
        stamps = []
        for name, path in named.items():
            if path is not None:
                try:
                    stamps.append(path.stat().st_mtime_ns)
                except OSError as error:
                    raise _unreadable(name, path, error) from None
        return tuple(stamps)


def _bytes_of(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(name, path, error) from None


def _unreadable(name: str, path: Path, error: OSError) -> BadSetting:
    return BadSetting(f"cannot read {name} = {str(path)!r}: {error.strerror}")


def _check_certificates(name: str, path: Path, data: bytes) -> None:
    """Raise BadSetting unless the bytes are certificates in PEM."""
    if not data.strip():
        raise BadSetting(f"{name} = {str(path)!r} is empty; it must hold a certificate in PEM")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"{name} = {str(path)!r} holds no certificate in PEM (`-----BEGIN CERTIFICATE-----`): "
            f"{error}"
        ) from None


def _check_key(cert: Path, key: Path) -> None:
    """Raise BadSetting unless the file is the private key, in PEM, of the certificate."""
    try:
        # A key with a password is refused; without one given here, OpenSSL asks the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadSetting(
                f"tls_key = {str(key)!r} is not the key of the certificate tls_cert = {str(cert)!r}"
            ) from None
        raise BadSetting(
            f"tls_key = {str(key)!r} holds no private key in PEM without a password "
            f"(`-----BEGIN PRIVATE KEY-----`): {error}"
        ) from None
