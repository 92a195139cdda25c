"""However many connections there are, the log and the clients that are there go on."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shedder.cli.exit_codes import ExitCode
from shedder.errors import InternalError, Overloaded, ResourcesShort, StorageFailed
from shedder.server.connections import Connections, most_common
from shedder.server.descriptors import FILES_MAX, allowed, open_descriptors
from tests.server.worlds import CREATE_TRADES, Front, connect, wait_until_reached
from tests.server_process import ServerProcess, running, shedder_command
from tests.streams.streams import trades
from tests.warm_process import WarmProcess


@pytest.mark.parametrize(
    ("wanted", "limit", "in_use", "found"),
    [
        (4_096, 1 << 20, 80, 4_096),
        (4_096, 1_024, 80, 472),  # Half of what is free.
        (4_096, 4_096, 96, 4_000 - FILES_MAX),
        (4_096, 128, 78, 25),
        (10, 1_024, 80, 10),
        (4_096, 96, 80, 8),
    ],
)
def test_connections_leave_descriptors_to_files(wanted, limit, in_use, found):
    assert allowed(wanted, limit=limit, in_use=in_use) == found


@pytest.mark.parametrize("limit", [64, 80, 95])
def test_a_server_does_not_begin_without_descriptors(limit):
    with pytest.raises(ResourcesShort, match=f"too many open files: 80, and the limit is {limit}"):
        allowed(4_096, limit=limit, in_use=80)


@pytest.mark.slow
@pytest.mark.parametrize("held", [300])
def test_idle_connections_above_the_limit_of_descriptors_stop_nothing(tmp_path, held):
    """Each batch needs a new segment of the log. The first version stopped ingest for good."""
    process = ServerProcess(
        tmp_path / "data",
        limits={resource.RLIMIT_NOFILE: 128},
        log_segment_bytes="64KiB",
    )
    host, _, port = process.address.rpartition(":")
    with process.connect() as client, ExitStack() as stack:
        client.execute(CREATE_TRADES)
        for _ in range(held):
            stack.enter_context(socket.create_connection((host, int(port))))
        for number in range(10):
            client.push("trades", trades(2_000, number))
        assert client.execute("SELECT COUNT(*) AS n FROM trades").rows()[0]["n"] == 20_000
        stack.close()
        wait_until_reached(process.address)
        with process.connect() as another:
            assert another.ledger("trades").applied == 20_000
    assert process.stop() == 0
    assert "few_descriptors" in process.said()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        (resource.RLIMIT_NOFILE, 14, "oo many open files"),
        (resource.RLIMIT_NOFILE, 20, "oo many open files"),
        (resource.RLIMIT_AS, 700 << 20, "memory"),
    ],
)
def test_a_start_without_descriptors_or_memory_says_so(tmp_path, limit, value, said):
    log = tmp_path / "server.log"
    arguments = ["serve", "--insecure", "--listen=127.0.0.1:0", f"--data={tmp_path / 'data'}"]
    process = WarmProcess(shedder_command, arguments, {limit: value}, errors=log)
    assert process.output.readline() == ""
    assert process.wait() == ExitCode.UNREACHABLE, log.read_text()
    *_, last = log.read_text().splitlines()
    assert last.startswith("shedder: ")
    assert said in last


def test_the_address_with_most_connections_gives_most_of_them():
    crowd = [("10.0.0.1", port) for port in range(10)]
    few = [("10.0.0.2", port) for port in range(3)]
    assert set(most_common([*crowd, *few], 7)) == set(crowd[:7])
    both = most_common([*crowd, *few], 11)
    assert [
        len([peer for peer in both if peer[0] == host]) for host in ("10.0.0.1", "10.0.0.2")
    ] == [
        9,
        2,
    ]
    assert most_common(crowd, 0) == most_common(crowd, -3) == []


def test_the_addresses_of_one_network_of_ipv6_are_one_crowd():
    crowd = [(f"2001:db8:0:2:{number:x}::1", 7) for number in range(10)]
    few = [("2001:db8:0:3::1", port) for port in range(3)]
    assert set(most_common([*crowd, *few], 7)) <= set(crowd)


class Listening:
    """A listening socket, its connections, and the clients at their other ends."""

    def __init__(self, stack: ExitStack, clients: int) -> None:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = listener.getsockname()[1]
        self.clients, self.accepted = [], []
        for _ in range(clients):
            client = socket.create_connection(("127.0.0.1", self.port), timeout=60.0)
            self.clients.append(stack.enter_context(client))
            self.accepted.append(stack.enter_context(listener.accept()[0]))

    def peer(self, number: int) -> str:
        return f"ipv4:127.0.0.1:{self.clients[number].getsockname()[1]}"

    def closed(self) -> list[int]:
        """Return which clients have seen the end of their connection."""
        found = []
        for number, client in enumerate(self.clients):
            client.setblocking(False)
            try:
                if client.recv(1) == b"":
                    found.append(number)
            except BlockingIOError:
                pass
        return found


def test_connections_without_an_identity_are_closed_at_the_second_look_where_there_are_many():
    before = set(open_descriptors())
    with ExitStack() as stack:
        listening = Listening(stack, 8)
        connections = Connections(10)
        for number in (0, 3):
            connections.show(listening.peer(number))
        assert connections.is_crowded
        assert connections.look(listening.port) == 0
        assert listening.closed() == []
        assert connections.look(listening.port) == 3  # Down to half of ten.
        closed = listening.closed()
        assert len(closed) == 3
        assert not {0, 3} & set(closed)
    assert set(open_descriptors()) == before


def test_a_connection_that_is_to_be_closed_is_closed_at_the_next_look_and_no_other_one():
    async def look() -> int:
        return await connections.look_aside(listening.port)

    with ExitStack() as stack:
        listening = Listening(stack, 3)
        connections = Connections(1_000_000)
        for number in range(3):
            connections.show(listening.peer(number))
        connections.close(listening.peer(1))
        connections.close("ipv4:127.0.0.1:1")  # It has left meanwhile.
        assert asyncio.run(look()) == 1
        assert listening.closed() == [1]
        assert asyncio.run(look()) == 0


def failing() -> list[int]:
    raise OSError(errno.EIO, "x")


def test_a_look_without_a_thread_ends_with_a_line_in_the_log():
    async def look(connections, port, *, has_thread=True):
        if not has_thread:
            executor = ThreadPoolExecutor()
            executor.shutdown()  # From now on it raises RuntimeError, as without a thread.
            asyncio.get_running_loop().set_default_executor(executor)
        return await connections.look_aside(port)

    with ExitStack() as stack, capture_logs() as logs:
        listening = Listening(stack, 8)
        connections = Connections(10)
        assert asyncio.run(look(connections, listening.port, has_thread=False)) == 0
        assert asyncio.run(look(Connections(10, descriptors=failing), listening.port)) == 0
        assert [asyncio.run(look(connections, listening.port)) for _ in range(2)] == [0, 3]
    assert [line["event"] for line in logs] == [
        "connections_not_checked",
        "connections_not_checked",
        "connections_closed",
    ]


def test_where_there_is_room_no_connection_is_closed():
    with ExitStack() as stack:
        listening = Listening(stack, 7)
        connections = Connections(10)
        assert [connections.look(listening.port) for _ in range(3)] == [0, 0, 0]
        assert Connections(1_000_000).is_crowded is False
        assert listening.closed() == []


def test_peers_that_have_left_are_forgotten():
    with ExitStack() as stack:
        listening = Listening(stack, 2)
        accepted = [each.fileno() for each in listening.accepted]
        connections = Connections(3, descriptors=lambda: accepted)
        for port in range(6):
            connections.show(f"ipv6:%5B::1%5D:{port}")
        connections.show(listening.peer(0))
        assert connections.is_crowded  # Seven peers, more than twice three.
        assert connections.look(listening.port) == 0
        assert not connections.is_crowded


@contextmanager
def spare_descriptors(count: int) -> Iterator[None]:
    """Leave so many descriptors to the process in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 1, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_look_takes_no_descriptor():
    with ExitStack() as stack:
        listening = Listening(stack, 8)
        accepted = [each.fileno() for each in listening.accepted]
        connections = Connections(10, descriptors=lambda: accepted)
        connections.show(listening.peer(0))
        with spare_descriptors(0):
            assert connections.look(listening.port) == 0
            assert connections.look(listening.port) == 3
        assert len(listening.closed()) == 3
        assert 0 not in listening.closed()


def test_a_look_without_a_free_descriptor_forgets_no_peer():
    with ExitStack() as stack:
        listening = Listening(stack, 8)
        connections = Connections(10)
        for number in range(8):
            connections.show(listening.peer(number))
        with spare_descriptors(0):
            assert connections.look(listening.port) == 0
            assert Connections(1_000_000).is_crowded  # None is free to list them.
        assert [connections.look(listening.port) for _ in range(3)] == [0, 0, 0]
        assert listening.closed() == []


def locked(path: Path) -> bool:
    """Return whether another process finds a lock on a file."""
    program = f"""
import fcntl
with open({str(path)!r}, "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("locked")
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return found.stdout == b"locked\n"


def test_a_look_drops_no_lock_of_the_process(tmp_path):
    """SQLite's locks end with the first close of any descriptor of their file."""
    path = tmp_path / "catalog.sqlite"
    with ExitStack() as stack:
        listening = Listening(stack, 8)
        file = stack.enter_context(path.open("w+"))
        fcntl.lockf(file, fcntl.LOCK_EX)
        connections = Connections(10)
        assert [connections.look(listening.port) for _ in range(2)] == [0, 3]
        assert locked(path)
    assert not locked(path)


class Short(Front):
    """An engine whose answers and batches fail for lack of something."""

    error: Exception | None = None

    def execute(self, *args, **named):
        if self.error is not None:
            raise self.error
        return self.engine.execute(*args, **named)

    def append(self, *args, **named):
        if self.error is not None:
            raise StorageFailed("cannot read a run") from self.error
        return self.engine.append(*args, **named)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "x"), "Too many open files"),
        (MemoryError(), "memory is short"),
        (RuntimeError("can't start new thread"), "no thread could be started"),
    ],
)
def test_a_call_that_is_short_of_something_may_be_sent_again(engine, settings, error, said):
    engine.execute(CREATE_TRADES)
    front = Short(engine)
    with running(front, settings) as address, connect(address, patience_s=0) as client:
        front.error = error
        with pytest.raises(Overloaded, match=said):
            client.execute("SELECT COUNT(*) AS n FROM trades")
        with pytest.raises(Overloaded, match=said):
            client.push("trades", trades(10))
        front.error = None
        assert client.push("trades", trades(10)).position == 10


def test_an_error_that_is_no_shortage_stays_a_bug(engine, settings):
    front = Short(engine)
    with running(front, settings) as address, connect(address) as client:
        front.error = OSError(errno.EIO, "x")
        with pytest.raises(InternalError, match="internal error"):
            client.execute("SHOW STREAMS")
