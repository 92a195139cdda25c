"""A real engine, served on a free port of this machine."""

import datetime
import ipaddress

import pytest
import trustme

import shedder
from shedder.engine.runtime.caller import Scope
from shedder.engine.runtime.environment import Environment
from shedder.server.authentication import new_token
from shedder.server.call_context import CallLimits
from shedder.settings import Settings
from tests.server.worlds import CREATE, CREATE_TRADES, connect, connection_to
from tests.server_process import running

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def settings(request):
    """Settings of a server that sheds no work, so that its counts do not depend on CPU load."""
    own = getattr(request, "param", {})
    return Settings(listen="127.0.0.1:0", insecure=True, drain_s=5, overload="off", **own)


@pytest.fixture
def machine():
    """The machine that the engine runs on."""
    return Environment()


@pytest.fixture
def engine(tmp_path, settings, machine):
    with shedder.open(tmp_path / "data", settings, machine=machine) as engine:
        yield engine


@pytest.fixture
def front(engine):
    """The engine that the server serves; some modules replace it with one that has faults."""
    return engine


@pytest.fixture
def limits():
    return CallLimits()


@pytest.fixture
def address(front, settings, limits):
    with running(front, settings, limits) as address:
        yield str(address)


@pytest.fixture
def connection(address):
    """A client's connection, for calls that no client makes."""
    connection = connection_to(address)
    yield connection
    connection.close()


@pytest.fixture
def client(address):
    with connect(address) as client:
        client.execute(CREATE_TRADES)
        yield client


@pytest.fixture(params=["open", "connect"])
def database(request, engine):
    """The same database, here and from afar."""
    if request.param == "connect":
        yield request.getfixturevalue("client")
    else:
        engine.execute(CREATE_TRADES)
        yield engine


QUERY = (
    "SELECT COUNT(*) AS n, SUM(key) AS s, MIN(value) AS l, MAX(value) AS h, "
    "COUNT(DISTINCT key) AS d, QUANTILE(value, 0.9) AS q FROM {} CONFIDENCE 99.9999 PERCENT"
)


@pytest.fixture
def twins(client):
    """Two streams of the same tuples, of which one comes as summaries."""
    client.execute(CREATE.format("twins"))
    for name in ("trades", "twins"):
        client.register(f"of_{name}", QUERY.format(name))
    return client


class Authority:
    """A certificate authority with a server's certificate, tokens of every kind, and a rival."""

    def __init__(self, directory):
        self.directory = directory
        self.ca = trustme.CA()
        self.rival = trustme.CA()
        self.tokens = {}
        entries = []
        for name, scopes, expires in (
            ("admin", [Scope.ADMIN], None),
            ("ingest", [Scope.INGEST], None),
            ("query", [Scope.QUERY], None),
            ("expired", [Scope.ADMIN], PAST),
        ):
            self.tokens[name], entry = new_token(name, scopes, expires)
            entries.append(entry)
        self.tokens["unknown"], _ = new_token("unknown", [Scope.ADMIN])
        self.tokens_file = directory / "tokens.toml"
        self.tokens_file.write_text("\n".join(entries))
        server = self.ca.issue_cert("127.0.0.1", "localhost", str(ipaddress.ip_address("::1")))
        self.cert, self.key = directory / "cert.pem", directory / "key.pem"
        self.renew(server)

    def renew(self, issued):
        """Put a certificate where the server looks for it."""
        issued.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    @property
    def ca_pem(self):
        return self.ca.cert_pem.bytes()

    def settings(self, **options):
        return Settings(
            listen="127.0.0.1:0", tls_cert=self.cert, tls_key=self.key, drain_s=5, **options
        )


@pytest.fixture
def authority(tmp_path):
    directory = tmp_path / "identity"
    directory.mkdir()
    return Authority(directory)
