"""A real server in a process of its own, and clients in theirs, for benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import trustme

from shedder.engine.runtime.caller import Scope
from shedder.server.authentication import new_token
from shedder.settings import PREFIX


@dataclass(frozen=True, slots=True)
class ServedProcess:
    """A running server: where it listens, where its data are, its process."""

    address: str
    directory: Path
    process: psutil.Process

    @property
    def resident_bytes(self) -> int:
        """Memory of the server and its workers."""
        resident = self.process.memory_info().rss
        for worker in self.process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # A worker may end between the two calls.
                resident += worker.memory_info().rss
        return resident


@dataclass(frozen=True, slots=True)
class Identities:
    """Certificates of an authority of its own, and a token for each tenant, for all of its own.

    directory: where they are. tokens: by tenant.
    """

    directory: Path
    tokens: Mapping[str, str]

    @classmethod
    def of(cls, directory: Path, tenants: Iterable[str], quotas: str) -> Identities:
        """Make them. quotas: TOML, as in docs/operations.md."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(directory / "key.pem")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (directory / "cert.pem").write_bytes(chain)
        authority.cert_pem.write_to_path(directory / "ca.pem")
        scopes = (Scope.INGEST, Scope.QUERY, Scope.DEFINE)
        made = {tenant: new_token(tenant, scopes, tenant=tenant) for tenant in tenants}
        entries = "\n".join(entry for _, entry in made.values())
        (directory / "tokens.toml").write_text(entries)
        (directory / "tenants.toml").write_text(quotas)
        return cls(directory, {tenant: token for tenant, (token, _) in made.items()})

    @property
    def ca(self) -> Path:
        """Authority that signed the server's certificate."""
        return self.directory / "ca.pem"

    @property
    def settings(self) -> dict[str, object]:
        """Of a server that knows them."""
        return {
            "tls_cert": self.directory / "cert.pem",
            "tls_key": self.directory / "key.pem",
            "tokens_file": self.directory / "tokens.toml",
            "tenants_file": self.directory / "tenants.toml",
        }


def environment(caller: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a server with these settings, and with none of the caller's."""
    kept = {name: value for name, value in caller.items() if not name.startswith(PREFIX)}
    return kept | {f"{PREFIX}{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def server(
    *, bare: bool = False, identities: Identities | None = None, **settings: object
) -> Iterator[ServedProcess]:
    """Start a server on a fresh directory, and stop it afterwards.

    Args:
      bare: the floor (benchmarks/workloads/bare.py) in place of Shedder.
      identities: callers that it knows; None: every caller may do everything, in plain text.
      settings: of Shedder.
    """
    settings |= {} if identities is None else identities.settings
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        command = [sys.executable, "-m"]
        if bare:
            command += ["benchmarks.workloads.bare", str(directory), address]
        else:
            command += ["shedder.cli.main", "serve"]
            command += ["--insecure"] if identities is None else []
            command += ["--data", str(directory), "--listen", address]
        process = subprocess.Popen(
            command,
            env=environment(os.environ, settings),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            if not process.stdout.readline():  # The address, as soon as calls are answered.
                raise RuntimeError(f"the server ended with code {process.wait()}")
            yield ServedProcess(address, directory, psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
