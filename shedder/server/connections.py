"""Open connections of the server. Connections without an identity are closed if room is short."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import unquote

from shedder.server.descriptors import open_descriptors

CROWDED = 0.75  # Share of allowed connections at which connections are closed,
CALM = 0.5  # and the share down to which connections without an identity are closed.

Peer = tuple[str, int]  # host and port


class Connections:
    """Tracks peers that have shown an identity, and closes other connections if room is short.

    gRPC neither lists nor closes connections without calls. So `look` finds such connections among
    the descriptors of the process and shuts them down. gRPC treats this as the end of the peer.

    A connection is closed at the second look that finds it without an identity. The address with
    most such connections comes first.
    """

    def __init__(
        self, most: int, descriptors: Callable[[], Iterable[int]] = open_descriptors
    ) -> None:
        """most: connections that gRPC accepts at once."""
        self._most = most
        self._descriptors = descriptors
        self._known: set[str] = set()  # as gRPC writes peers
        self._strangers: frozenset[Peer] = frozenset()  # at the last look

    def show(self, peer: str) -> None:
        """Note that a peer has shown an identity."""
        self._known.add(peer)

    @property
    def is_crowded(self) -> bool:
        """Return whether there may be so many connections that `look` has work."""
        descriptors = sum(1 for _ in self._descriptors())
        return descriptors >= CROWDED * self._most or len(self._known) > 2 * self._most

    def look(self, port: int) -> int:
        """Close connections of a port where there are too many. From any thread, one at a time.

        Returns:
          how many were closed.
        """
        shown = set(self._known)  # Before descriptors are listed: each of these is among them.
        found = _connections(port, self._descriptors())
        try:
            known = {written: _parsed(written) for written in shown}
            self._known.difference_update(
                written for written, peer in known.items() if peer not in found
            )
            strangers = frozenset(found.keys() - known.values())
            closing: list[Peer] = []
            if len(found) >= CROWDED * self._most:
                surplus = len(found) - int(CALM * self._most)
                closing = most_common(strangers & self._strangers, surplus)
            for peer in closing:
                with suppress(OSError):  # The peer was faster.
                    found[peer].shutdown(socket.SHUT_RDWR)
            self._strangers = strangers.difference(closing)
            return len(closing)
        finally:
            for connection in found.values():
                connection.close()


def most_common(peers: Iterable[Peer], count: int) -> list[Peer]:
    """Return at most `count` peers, first those of the addresses with most peers left."""
    by_host: dict[str, list[Peer]] = {}
    for peer in sorted(peers):
        by_host.setdefault(peer[0], []).append(peer)
    ranked = [(len(of) - rank, peer) for of in by_host.values() for rank, peer in enumerate(of)]
    return [peer for _, peer in sorted(ranked, reverse=True)[: max(0, count)]]


def _connections(port: int, descriptors: Iterable[int]) -> dict[Peer, socket.socket]:
    """Return the accepted connections of a port, each as a socket with its own descriptor."""
    found: dict[Peer, socket.socket] = {}
    for descriptor in descriptors:
        connection = _socket(descriptor)
        if connection is None:
            continue
        peer = _peer(connection, port)
        if peer is None or peer in found:
            connection.close()
        else:
            found[peer] = connection
    return found


def _socket(descriptor: int) -> socket.socket | None:
    """Return a socket with a duplicate of a descriptor; None where that is no socket."""
    try:
        duplicate = os.dup(descriptor)
    except OSError:  # It was closed meanwhile.
        return None
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return None


def _peer(connection: socket.socket, port: int) -> Peer | None:
    """Return the peer of an accepted connection of a port; None for everything else."""
    try:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if connection.getsockname()[1] != port:
            return None
        host, peer_port = connection.getpeername()[:2]
    except OSError:  # The socket listens, or has no peer any more.
        return None
    return _host(host), peer_port


def _parsed(written: str) -> Peer:
    """Parse a peer as gRPC writes it: `ipv4:127.0.0.1:7077`, `ipv6:%5B::1%5D:7077`."""
    _, _, address = unquote(written).partition(":")
    host, _, port = address.rpartition(":")
    return _host(host.strip("[]")), int(port) if port.isdecimal() else 0


def _host(host: str) -> str:
    """Return an address in one form, without the zone and the mark of mapped addresses."""
    return host.partition("%")[0].removeprefix("::ffff:")
