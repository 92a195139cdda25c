"""A server that cannot use its TLS files names the setting and the file."""

from __future__ import annotations

import re
import subprocess

import pytest

from shedder.engine.runtime.caller import Scope
from shedder.errors import BadSetting
from shedder.server.listener import Certificates
from tests.server.worlds import connect
from tests.server_process import running

PEM = "-----BEGIN {0}-----\nbm90aGluZw==\n-----END {0}-----\n"


def write(path, text):
    path.write_text(text)
    return path


BROKEN = {
    "missing cert": (
        lambda a: a.cert.unlink(),
        r"cannot read tls_cert = '.*cert.pem': No such file",
    ),
    "missing key": (lambda a: a.key.unlink(), r"cannot read tls_key = '.*key.pem': No such file"),
    "empty cert": (lambda a: write(a.cert, ""), r"tls_cert = '.*cert.pem' is empty"),
    "empty key": (lambda a: write(a.key, ""), r"tls_key = '.*key.pem' holds no private key"),
    "broken cert": (
        lambda a: write(a.cert, PEM.format("CERTIFICATE")),
        r"tls_cert = '.*cert.pem' holds no certificate",
    ),
    "no text as cert": (
        lambda a: a.cert.write_bytes(bytes(range(256))),
        r"tls_cert = '.*cert.pem' holds no certificate",
    ),
    "broken key": (
        lambda a: write(a.key, PEM.format("PRIVATE KEY")),
        r"tls_key = '.*key.pem' holds no private key",
    ),
    "key for cert": (
        lambda a: a.cert.write_bytes(a.key.read_bytes()),
        r"tls_cert = '.*cert.pem' holds no certificate",
    ),
    "mismatch": (
        lambda a: a.ca.issue_cert("127.0.0.1").private_key_pem.write_to_path(a.key),
        r"tls_key = '.*key.pem' is not the key of the certificate tls_cert = '.*cert.pem'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(engine, authority, name):
    breaks, said = BROKEN[name]
    settings = authority.settings(tokens_file=authority.tokens_file)
    breaks(authority)
    with pytest.raises(BadSetting, match=said), running(engine, settings):
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"cannot read tls_client_ca = '.*ca.pem': No such file"),
        ("", r"tls_client_ca = '.*ca.pem' is empty"),
        ("\n", r"tls_client_ca = '.*ca.pem' is empty"),
        ("nothing", r"tls_client_ca = '.*ca.pem' holds no certificate"),
    ],
)
def test_an_authority_without_a_certificate_is_refused(engine, authority, text, said):
    ca = authority.directory / "ca.pem"
    if text is not None:
        ca.write_text(text)
    with (
        pytest.raises(BadSetting, match=said),
        running(engine, authority.settings(tls_client_ca=ca)),
    ):
        pass


def test_a_key_with_a_password_is_refused_and_nothing_is_asked(authority):
    command = ["openssl", "pkcs8", "-topk8", "-in", str(authority.key), "-passout", "pass:x"]
    encrypted = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert re.match("-----BEGIN ENCRYPTED PRIVATE KEY-----", encrypted)
    authority.key.write_text(encrypted)
    with pytest.raises(BadSetting, match="holds no private key in PEM without a password"):
        Certificates(authority.settings(tokens_file=authority.tokens_file)).credentials()


def test_while_a_renewed_file_is_broken_the_old_certificate_stays(engine, authority):
    settings = authority.settings(tokens_file=authority.tokens_file)
    token = authority.tokens[Scope.ADMIN.value]
    with running(engine, settings) as address:
        authority.cert.write_text("half a certif")
        with connect(address, ca=authority.ca_pem, token=token) as client:
            assert client.execute("SHOW STREAMS").rows() == []
        authority.renew(authority.rival.issue_cert("127.0.0.1"))
        with connect(address, ca=authority.rival.cert_pem.bytes(), token=token) as client:
            assert client.execute("SHOW STREAMS").rows() == []
