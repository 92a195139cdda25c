"""Peers as gRPC writes them, and the networks by which peers are counted."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from urllib.parse import unquote

PREFIX_BITS = 64  # The smallest network that a host on IPv6 is given (RFC 4291, 2.5.4).

Peer = tuple[str, int]  # host and port


def parsed(written: str) -> Peer:
    """Parse a peer as gRPC writes it: `ipv4:127.0.0.1:7077`, `ipv6:%5B::1%5D:7077`."""
    _, _, address = unquote(written).partition(":")
    host, _, port = address.rpartition(":")
    return plain_host(host.strip("[]")), int(port) if port.isdecimal() else 0


def plain_host(host: str) -> str:
    """Return an address in one form, without the zone and the mark of mapped addresses."""
    return host.partition("%")[0].removeprefix("::ffff:")


def network(host: str) -> str:
    """Return what peers are counted by: the address, of IPv6 its first 64 bits.

    One host on IPv6 has all 2^64 addresses of its network.
    """
    if ":" in host:
        with suppress(ValueError):
            address = ipaddress.IPv6Address(host)
            return str(ipaddress.IPv6Network((address, PREFIX_BITS), strict=False))
    return host
