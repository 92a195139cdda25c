"""`shedder token`: make a bearer token and enter it into a tokens file."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from shedder.cli.stderr import say
from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.runtime.caller import Scope
from shedder.errors import BadSetting
from shedder.server.authentication import new_token

_DAYS_MAX = 36_500  # A hundred years: datetime has no more than the years up to 9999.


def token(
    name: Annotated[str, typer.Argument(help="Whose it is; logs and metrics show it.")],
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="The tokens file to add it to.")
    ],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; may be repeated.")],
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Whose streams it uses.")
    ] = DEFAULT_TENANT,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=_DAYS_MAX, help="Until it expires; for ever when not said."),
    ] = None,
) -> None:
    """Make a token: its hash goes into the file, the token itself to stdout, once.

    A running server sees the changed file by itself.

    - `shedder token collector --scope ingest --file tokens.toml > collector.token`
    """
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    secret, entry = new_token(name, scope, expires, tenant)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a") as tokens:
            tokens.write(("\n" if tokens.tell() else "") + entry)
    except OSError as error:
        raise BadSetting(f"cannot write the tokens file {str(file)!r}: {error}") from error
    print(secret)
    say(f"{name} may {', '.join(one.value for one in scope)}; entered into {file}")
