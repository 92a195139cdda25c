"""HTTP/2 frames by hand, for clients that no gRPC library is: unfinished requests, closed windows.

with Raw(address) as raw:
    raw.open("/shedder.v1.Query/Execute", (("authorization", "Bearer x"),))
    raw.send(1, b"...", of_bytes=16 << 20)
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Self

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_WINDOW_UPDATE = 8
_END_HEADERS, _END_STREAM, _ACK = 4, 1, 1
_INITIAL_WINDOW = 4  # The setting of this number.
FRAME_BYTES_MAX = 16_384
WINDOW_BYTES = 65_535


class Raw:
    """One connection. Streams have the numbers 1, 3, 5, ... in order of `open`.

    window_bytes: that the server may send on each stream before it waits. ended: streams that the
    server has ended, with what it said in their headers. headers: bytes of headers by stream.
    """

    def __init__(
        self,
        address: str,
        ca_pem: bytes | None = None,
        *,
        window_bytes: int = WINDOW_BYTES,
        timeout_s: float = 120.0,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        if ca_pem is not None:
            tls = ssl.create_default_context(cadata=ca_pem.decode())
            tls.set_alpn_protocols(["h2"])
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._next = 1
        self._room = {0: WINDOW_BYTES}  # bytes that may be sent, by stream; 0: the connection
        self._stream_room = WINDOW_BYTES
        self._is_known = False  # The server's settings are there.
        self.ended: dict[int, bytes] = {}
        self.headers: dict[int, bytes] = {}
        setting = struct.pack(">HI", _INITIAL_WINDOW, window_bytes)
        self.socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, setting))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def open(self, method: str, metadata: tuple[tuple[str, str], ...] = ()) -> int:
        """Begin a call; return the number of its stream."""
        stream, self._next = self._next, self._next + 2
        fields = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "test"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *metadata,
        )
        block = b"".join(_field(name.encode(), value.encode()) for name, value in fields)
        self.socket.sendall(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._room[stream] = self._stream_room
        return stream

    def send(
        self, stream: int, data: bytes, of_bytes: int | None = None, *, is_last: bool = False
    ) -> None:
        """Begin a message, of which more than these bytes are announced; at most one frame."""
        size = len(data) if of_bytes is None else of_bytes
        self.send_more(stream, struct.pack(">BI", 0, size) + data, is_last=is_last)

    def send_more(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        """Send bytes of a message, whatever the windows say."""
        assert len(data) <= FRAME_BYTES_MAX
        flags = _END_STREAM if is_last else 0
        self.socket.sendall(_frame(_DATA, flags, stream, data))
        self._room[stream] -= len(data)
        self._room[0] -= len(data)

    def allow(self, stream: int, size_bytes: int) -> None:
        """Let the server send more bytes on a stream."""
        update = struct.pack(">I", size_bytes)
        self.socket.sendall(_frame(_WINDOW_UPDATE, 0, stream, update))

    def room(self, stream: int) -> int:
        """Return how many bytes the server takes on a stream now."""
        return min(self._room[stream], self._room[0])

    def receive(self) -> None:
        """Read one frame of the server, and take it into account."""
        head = self._exactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        payload = self._exactly(size)
        if kind == _SETTINGS and not flags & _ACK:
            self._take_settings(payload)
        elif kind == _PING and not flags & _ACK:
            self.socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(payload, "big") & 0x7FFFFFFF
            self._room[stream] = self._room.get(stream, 0) + more
        elif kind == _HEADERS:
            self.headers[stream] = self.headers.get(stream, b"") + payload
            if flags & _END_STREAM:
                self.ended[stream] = self.headers[stream]
        elif kind == _RST_STREAM:
            self.ended.setdefault(stream, self.headers.get(stream, b""))
        elif kind == _GOAWAY:
            raise ConnectionError(f"the server ends the connection: {payload[8:]!r}")

    def wait_for_end(self, stream: int) -> bytes:
        """Receive until the server has ended a stream; return the bytes of its headers."""
        while stream not in self.ended:
            self.receive()
        return self.ended[stream]

    def is_at_its_end(self) -> bool:
        """Receive until the server closes the connection; raise TimeoutError if it does not."""
        try:
            while True:
                self.receive()
        except TimeoutError:
            raise
        except (ConnectionError, OSError):
            return True

    def _take_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            number, value = struct.unpack(">HI", payload[at : at + 6])
            if number == _INITIAL_WINDOW:
                for stream in self._room:
                    if stream:
                        self._room[stream] += value - self._stream_room
                self._stream_room = value
        self.socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has closed the connection")
            data += more
        return data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _field(name: bytes, value: bytes) -> bytes:
    """A header as HPACK has it, neither indexed nor compressed."""
    return b"\0" + _text(name) + _text(value)


def _text(value: bytes) -> bytes:
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest = len(value) - 127
    encoded = bytearray([127])
    while rest >= 128:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded) + value
