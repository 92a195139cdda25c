"""Open connections of the server, and the closing of those that it cannot serve."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import structlog

from shedder.archive.files.file_system import DESCRIPTOR_ERRNOS
from shedder.server.descriptors import open_descriptors
from shedder.server.peers import Peer, network, parsed, plain_host

CROWDED = 0.75  # Share of allowed connections at which connections are closed,
CALM = 0.5  # and the share down to which connections without an identity are closed.

_log = structlog.get_logger("shedder.server")


class Connections:
    """Closes connections of peers that read nothing, or show no identity while room is short.

    gRPC neither lists nor closes connections without calls. So `look` finds such connections among
    the descriptors of the process and shuts them down. gRPC treats this as the end of the peer.

    A connection is closed at the second look that finds it without an identity. The network with
    most such connections comes first. A connection that `close` names is closed at the next look.
    """

    def __init__(
        self, most: int, descriptors: Callable[[], Iterable[int]] = open_descriptors
    ) -> None:
        """most: connections that gRPC accepts at once."""
        self._most = most
        self._descriptors = descriptors
        self._known: set[str] = set()  # as gRPC writes peers
        self._closing: set[str] = set()  # as gRPC writes peers
        self._strangers: frozenset[Peer] = frozenset()  # at the last look

    def show(self, peer: str) -> None:
        """Note that a peer has shown an identity."""
        self._known.add(peer)

    def close(self, peer: str) -> None:
        """Have the connection of a peer closed at the next look, with all of its calls."""
        self._closing.add(peer)

    @property
    def is_crowded(self) -> bool:
        """Return whether there may be so many connections that `look` has work."""
        try:
            descriptors = sum(1 for _ in self._descriptors())
        except OSError as error:
            if error.errno not in DESCRIPTOR_ERRNOS:
                raise
            return True  # None is left to list them.
        return descriptors >= CROWDED * self._most or len(self._known) > 2 * self._most

    def look(self, port: int) -> int:
        """Close connections of a port: those to be closed, and some where there are too many.

        From any thread, one at a time.

        Returns:
          how many were closed.
        """
        shown = set(self._known)  # Before descriptors are listed: each of these is among them.
        try:
            descriptors = self._descriptors()
        except OSError as error:
            if error.errno not in DESCRIPTOR_ERRNOS:
                raise
            return 0  # None is left to list them; the next look decides.
        found = _connections(port, descriptors)
        known = {written: parsed(written) for written in shown}
        self._known.difference_update(
            written for written, peer in known.items() if peer not in found
        )
        strangers = frozenset(found.keys() - known.values())
        pending = set(self._closing)
        self._closing.difference_update(pending)
        closing = sorted(found.keys() & set(map(parsed, pending)))
        if len(found) >= CROWDED * self._most:
            surplus = len(found) - int(CALM * self._most)
            closing += most_common((strangers & self._strangers).difference(closing), surplus)
        closed = [peer for peer in closing if _shut_down(found[peer], peer, port)]
        self._strangers = strangers.difference(closed)
        return len(closed)

    async def look_aside(self, port: int) -> int:
        """Look on a thread if there may be connections to close; a failure is logged.

        Returns:
          how many were closed.
        """
        try:
            has_work = bool(self._closing) or self.is_crowded
            closed = await asyncio.to_thread(self.look, port) if has_work else 0
        except (RuntimeError, OSError) as error:  # No thread can start, or /dev/fd is not read.
            _log.warning("connections_not_checked", error=str(error))
            return 0
        if closed:
            _log.warning("connections_closed", connections=closed)
        return closed


def most_common(peers: Iterable[Peer], count: int) -> list[Peer]:
    """Return at most `count` peers, first those of the networks with most peers left."""
    by_network: dict[str, list[Peer]] = {}
    for peer in sorted(peers):
        by_network.setdefault(network(peer[0]), []).append(peer)
    ranked = [(len(of) - rank, peer) for of in by_network.values() for rank, peer in enumerate(of)]
    return [peer for _, peer in sorted(ranked, reverse=True)[: max(0, count)]]


def _connections(port: int, descriptors: Iterable[int]) -> dict[Peer, int]:
    """Return the accepted connections of a port, each with a descriptor."""
    found: dict[Peer, int] = {}
    for descriptor in descriptors:
        with _socket_of(descriptor) as connection:
            peer = None if connection is None else _peer(connection, port)
            if peer is not None:
                found.setdefault(peer, descriptor)
    return found


def _shut_down(descriptor: int, peer: Peer, port: int) -> bool:
    """Shut a connection down; False if the descriptor is not that of the peer any more."""
    with suppress(OSError), _socket_of(descriptor) as connection:
        if connection is not None and _peer(connection, port) == peer:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


@contextmanager
def _socket_of(descriptor: int) -> Iterator[socket.socket | None]:
    """Yield the socket of a descriptor, which stays open; None where that is no socket.

    A duplicate would have to be closed. If the descriptor is that of the catalog by then, the
    close drops all POSIX locks of the process on the catalog (fcntl(2)), which SQLite needs.
    """
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        connection = socket.socket(fileno=descriptor) if is_socket else None
    except OSError:  # It was closed meanwhile.
        connection = None
    try:
        yield connection
    finally:
        if connection is not None:
            connection.detach()


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
    return plain_host(host), peer_port
