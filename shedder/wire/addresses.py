"""Addresses: HOST:PORT, and whether it stays on this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from shedder.errors import BadSetting

DEFAULT_PORT = 7077


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, and a port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether only processes of this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # A name may resolve to any machine.

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> Address:
    """Read HOST, HOST:PORT, [V6] or [V6]:PORT.

    Raises:
      BadSetting: it is none of them.
    """
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadSetting(f"no address: {text!r}; write HOST:PORT or [IPV6]:PORT")
        port = port[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host or host.count(":") == 1 or any(sign in host for sign in "/ []"):
        raise BadSetting(f"no address: {text!r}; write HOST:PORT, like 127.0.0.1:7077")
    number = int(port) if port.isdecimal() else (default_port if not port else -1)
    if not 0 <= number <= 65_535:
        raise BadSetting(f"no port: {port!r} in {text!r}; a port is a number up to 65535")
    return Address(host, number)
