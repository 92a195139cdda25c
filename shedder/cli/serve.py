"""`shedder serve`: one data directory over gRPC, until SIGTERM."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from shedder.cli.stderr import say
from shedder.gc_tuning import keeping_what_is_loaded, loading


def serve(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            envvar="SHEDDER_DATA",
            help="Made when missing.",
            file_okay=False,
        ),
    ],
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Default 127.0.0.1:7077; port 0 takes a free one."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Without TLS and tokens; on loopback only."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML; docs/settings.md.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The budget of the process: 4GiB.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask clients for certificates of this CA.")
    ] = None,
    tokens_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Known callers; see `shedder token`.")
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Metrics for Prometheus.")
    ] = None,
    reflection: Annotated[
        bool | None, typer.Option("--reflection", help="Offer gRPC reflection.")
    ] = None,
) -> None:
    """Serve a data directory over gRPC until SIGTERM, then drain and end.

    The address is printed on stdout as soon as calls are answered.

    - `shedder serve --data ./data --insecure`
    - `shedder serve -d /var/lib/shedder --config /etc/shedder.toml`
    """
    from shedder.cli.logs import log_to_stderr  # Other commands do without pydantic and structlog.
    from shedder.settings import Settings

    settings = Settings.load(
        config,
        listen=listen,
        insecure=insecure,
        memory_bytes=memory,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        tokens_file=tokens_file,
        metrics_listen=metrics_listen,
        reflection=reflection,
    )
    log_to_stderr(settings)
    with loading():  # Heavy (gRPC, numba); `shedder --help` does without.
        from shedder.engine.engine import Engine
        from shedder.server.descriptors import raise_descriptor_limit
        from shedder.server.listener import check_free, checked_address
        from shedder.server.server import serve as serve_engine

    raise_descriptor_limit()
    address = checked_address(settings)  # Before recovery, which may take a while.
    check_free(address)
    with closing(Engine.open(data, settings)) as engine, keeping_what_is_loaded():
        if settings.insecure:
            say("no TLS, no tokens: every user of this machine may read, write and drop", "yellow")
        left_s = serve_engine(engine, settings, lambda address: print(address, flush=True))
        engine.close(within_s=left_s)
