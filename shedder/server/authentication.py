"""Identification of callers and their scopes: bearer tokens and client certificates.

A tokens file is TOML. It holds the SHA-256 of each token, never the token:

    [[token]]
    name = "collector"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    scopes = ["ingest"]
    expires = 2027-01-01T00:00:00Z    # may be left out
    tenant = "acme"                   # whose streams it uses; "default" when left out

Several tokens may be of one tenant. A client certificate of the server's authority may stand for a
token; it is known by its common name, or one of its alternative names:

    [[certificate]]
    name = "collector.acme.example"
    scopes = ["ingest"]
    tenant = "acme"

Tokens are 256 random bits, so a plain hash is as good as a slow one, and costs a microsecond.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import structlog

from shedder.cql.statements.bound_query import DEFAULT_TENANT
from shedder.engine.runtime.caller import Caller, Scope
from shedder.errors import BadSetting, Unauthenticated
from shedder.overload.quotas import checked_tenant

TOKEN_BYTES = 32

_log = structlog.get_logger("shedder.identity")


@dataclass(frozen=True, slots=True)
class Identity:
    """A known caller: its name, its scopes and its tenant."""

    name: str
    scopes: frozenset[Scope]
    expires: datetime | None = None
    tenant: str = DEFAULT_TENANT

    @property
    def caller(self) -> Caller:
        """As the engine knows it."""
        return Caller(self.tenant, sees_all=Scope.ADMIN in self.scopes)

    def may(self, scopes: frozenset[Scope]) -> bool:
        """Return whether one of these scopes is held."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


# Identity of all callers of an insecure server, which listens on this machine only.
LOCAL = Identity("local", frozenset(Scope))

# Whose call is being served; set by the boundary.
caller: ContextVar[Identity] = ContextVar("caller")


def new_token(
    name: str,
    scopes: Iterable[Scope],
    expires: datetime | None = None,
    tenant: str = DEFAULT_TENANT,
) -> tuple[str, str]:
    """A new random token, and its entry for the tokens file.

    Raises:
      BadSetting: no tenant, or no token, can have this name.
    """
    checked_tenant(tenant)
    if not name or not name.isprintable():
        raise BadSetting(f"a token cannot be named {name!r}: it needs signs that can be printed")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    named = ", ".join(f'"{scope.value}"' for scope in scopes)
    quoted = json.dumps(name, ensure_ascii=False)  # Of what is printable TOML's texts are JSON's.
    lines = ["[[token]]", f"name = {quoted}", f'sha256 = "{_digest(token)}"', f"scopes = [{named}]"]
    if expires is not None:
        lines.append(f"expires = {expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    if tenant != DEFAULT_TENANT:
        lines.append(f'tenant = "{tenant}"')
    return token, "\n".join(lines) + "\n"


def parse_tokens(text: str) -> dict[str, Identity]:
    """The identities in a tokens file that have tokens, by SHA-256.

    Raises:
      BadSetting: the text is not such a file.
    """
    entries = _tables(text)["token"]
    return dict(_entry(entry, number) for number, entry in enumerate(entries, 1))


def parse_certificates(text: str) -> dict[str, Identity]:
    """The identities in a tokens file that have certificates, by the name in these.

    Raises:
      BadSetting: the text is not such a file.
    """
    entries = enumerate(_tables(text)["certificate"], 1)
    found = [_identity(entry, f"certificate {number}") for number, entry in entries]
    return {identity.name: identity for identity in found}


def _tables(text: str) -> dict[str, list[Mapping[str, Any]]]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"the tokens file is not TOML: {error}") from None
    unknown = document.keys() - {"token", "certificate"}
    tables = {key: document.get(key, []) for key in ("token", "certificate")}
    are_lists = all(isinstance(entries, list) for entries in tables.values())
    if unknown or not are_lists or not all(isinstance(e, dict) for e in chain(*tables.values())):
        raise BadSetting("the tokens file holds [[token]] and [[certificate]] tables, nothing else")
    return tables


def _entry(entry: Mapping[str, Any], number: int) -> tuple[str, Identity]:
    digest = str(entry.get("sha256", "")).lower()
    identity = _identity(entry, f"token {number}")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise BadSetting(f"token {identity.name!r}: sha256 is 64 hexadecimal digits")
    return digest, identity


def _identity(entry: Mapping[str, Any], which: str) -> Identity:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise BadSetting(f"{which} has no name")
    try:
        scopes = frozenset(Scope(scope) for scope in entry["scopes"])
    except (KeyError, TypeError, ValueError):
        known = ", ".join(scope.value for scope in Scope)
        raise BadSetting(f"{name!r}: scopes is a list of {known}") from None
    expires = entry.get("expires")
    if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo):
        raise BadSetting(f"{name!r}: expires is a moment with a zone: 2027-01-01T00:00:00Z")
    tenant = checked_tenant(entry.get("tenant", DEFAULT_TENANT))
    return Identity(name, scopes, expires, tenant)


class Tokens:
    """The identities of a tokens file; a changed file is read again, a broken one is not used."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = path
        self._now = now
        self._stamp = (-1, -1)
        self._identities: dict[str, Identity] = {}
        self._certificates: dict[str, Identity] = {}
        try:
            self.refresh()
        except OSError as error:
            raise BadSetting(f"cannot read the tokens file {str(path)!r}: {error}") from None

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp != self._stamp:
            try:
                text = self._path.read_text()
            except UnicodeDecodeError as error:
                raise BadSetting(f"the tokens file is no text: {error}") from None
            identities, certificates = parse_tokens(text), parse_certificates(text)
            self._identities, self._certificates = identities, certificates
            self._stamp = stamp

    def identify(self, token: str) -> Identity:
        """Return the identity of a token.

        Raises:
          Unauthenticated: the token is unknown, or it has expired.
        """
        identity = self._identities.get(_digest(token))
        if identity is None:
            raise Unauthenticated("the token is not known")
        return self._in_time(identity)

    def certified(self, names: Iterable[str]) -> Identity | None:
        """Return the identity of a certificate with these names; None if the file has none of them.

        Raises:
          Unauthenticated: the entry has expired.
        """
        for name in names:
            if name in self._certificates:
                return self._in_time(self._certificates[name])
        return None

    def _in_time(self, identity: Identity) -> Identity:
        if identity.expires is not None and identity.expires <= self._now():
            raise Unauthenticated(f"the token of {identity.name!r} has expired")
        return identity

    def refresh_or_keep(self) -> None:
        """As `refresh`, but a file that cannot be used leaves what was there in force."""
        try:
            self.refresh()
        except (OSError, BadSetting) as error:
            _log.error("tokens_file_not_used", path=str(self._path), error=str(error))


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token in a call's metadata: `authorization: Bearer ...`."""
    for key, value in metadata:
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer" and token:
                return token.strip()
    return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
