"""Addresses are read as written, and only this machine's own are loopback."""

import pytest

from shedder.errors import BadSetting
from shedder.wire.addresses import parse_address


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("127.8.9.1:0", "127.8.9.1", 0, True),
        ("localhost", "localhost", 7077, True),
        ("[::1]:9", "::1", 9, True),
        ("[::1]", "::1", 7077, True),
        ("::1", "::1", 7077, True),
        ("0.0.0.0:7077", "0.0.0.0", 7077, False),
        ("[::]:7077", "::", 7077, False),
        ("example.com:7077", "example.com", 7077, False),
        ("localhost.example.com", "localhost.example.com", 7077, False),
        ("10.0.0.1:7077", "10.0.0.1", 7077, False),
    ],
)
def test_addresses_are_read(text, host, port, loopback):
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":80", "a:b", "a:70000", "a:-1", "[::1", "[::1]x", "a b:1"])
def test_what_is_no_address_is_shown(text):
    with pytest.raises(BadSetting):
        parse_address(text)
