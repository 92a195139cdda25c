"""Peers as gRPC writes them."""

from __future__ import annotations

import pytest

from shedder.server.peers import network, parsed


@pytest.mark.parametrize(
    ("written", "peer", "counted_by"),
    [
        ("ipv4:127.0.0.1:7077", ("127.0.0.1", 7077), "127.0.0.1"),
        ("ipv6:%5B::1%5D:7077", ("::1", 7077), "::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:7", ("10.0.0.1", 7), "10.0.0.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", ("fe80::1", 7), "fe80::/64"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:7", ("2001:db8:1:2:3:4:5:6", 7), "2001:db8:1:2::/64"),
        ("unix:", ("", 0), ""),
        ("ipv6:%5Bnone::such::1%5D:x", ("none::such::1", 0), "none::such::1"),
    ],
)
def test_peers_are_parsed_and_counted_by_network(written, peer, counted_by):
    assert parsed(written) == peer
    assert network(peer[0]) == counted_by
