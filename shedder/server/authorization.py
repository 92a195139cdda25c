"""Authorization: the scope that each method needs, and the check of a caller's scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from shedder.engine.runtime.caller import Scope
from shedder.errors import PermissionDenied, Unauthenticated
from shedder.server.authentication import LOCAL, Identity, Tokens, bearer_token
from shedder.settings import Settings

ANONYMOUS = frozenset[Scope]()  # Callers without an identity: health probes have no token.
INGEST = frozenset({Scope.INGEST})
QUERY = frozenset({Scope.QUERY})
EITHER = INGEST | QUERY
ADMIN = frozenset({Scope.ADMIN})

# A method that is not here needs ADMIN. One of several scopes is enough; ADMIN always is.
SCOPES: Mapping[str, frozenset[Scope]] = MappingProxyType(
    {
        "/grpc.health.v1.Health/Check": ANONYMOUS,
        "/grpc.health.v1.Health/Watch": ANONYMOUS,
        "/grpc.health.v1.Health/List": ANONYMOUS,
        "/shedder.v1.Ingest/Append": INGEST,
        "/shedder.v1.Ingest/AppendStream": INGEST,
        "/shedder.v1.Ingest/Heartbeat": INGEST,
        "/shedder.v1.Ingest/DescribeStream": EITHER,
        "/shedder.v1.Ingest/GetLedger": EITHER,
        "/shedder.v1.Query/Execute": QUERY,  # Statements that change streams need DEFINE, too.
        "/shedder.v1.Query/Register": QUERY,
        "/shedder.v1.Query/Describe": QUERY,
        "/shedder.v1.Query/Invoke": QUERY,
        "/shedder.v1.Query/Subscribe": QUERY,
        "/shedder.v1.Query/Unregister": QUERY,
        "/shedder.v1.Synopses/GetPlans": INGEST,
        "/shedder.v1.Synopses/Merge": INGEST,
        "/shedder.v1.Synopses/MergeInParts": INGEST,
        "/shedder.v1.Backfill/Begin": ADMIN,  # It tells the stream's seed.
        "/shedder.v1.Backfill/Write": ADMIN,
        "/shedder.v1.Backfill/FinishPart": ADMIN,
        "/shedder.v1.Backfill/Adopt": ADMIN,
        "/shedder.v1.Backfill/Abandon": ADMIN,
        "/shedder.v1.Audit/Lend": ADMIN,
        "/shedder.v1.Audit/Report": ADMIN,  # It decides on a query's certification.
        "/shedder.v1.Control/Get": ADMIN,
        "/shedder.v1.Control/Set": ADMIN,
        "/shedder.v1.Control/Watch": ADMIN,
    }
)


class Gate:
    """Lets calls pass or not.

    With a tokens file every call needs a token, or a client certificate that the file names.
    Without one, any client certificate (which TLS has checked before anything gets here) may do
    everything. An insecure server lets all pass.
    """

    def __init__(self, settings: Settings) -> None:
        self._insecure = settings.insecure
        self.tokens = None if settings.tokens_file is None else Tokens(settings.tokens_file)

    def identify(
        self,
        metadata: Iterable[tuple[str, str | bytes]],
        authority: Mapping[str, Iterable[bytes]],
    ) -> Identity:
        """Return the identity of the caller.

        Args:
          metadata: metadata of the call.
          authority: what TLS knows of the peer, as gRPC's auth_context has it.

        Raises:
          Unauthenticated: the caller is not known.
        """
        if self._insecure:
            return LOCAL
        names, others = (
            [name.decode(errors="replace") for name in authority.get(key, ())]
            for key in ("x509_common_name", "x509_subject_alternative_name")
        )
        if self.tokens is not None:
            token = bearer_token(metadata)
            if token is not None:
                return self.tokens.identify(token)
            known = self.tokens.certified([*names, *others])
            if known is None:
                raise Unauthenticated("no token; send `authorization: Bearer ...`")
            return known
        if not names and not others:
            raise Unauthenticated("no client certificate")
        return Identity(names[0] if names else "certificate", frozenset(Scope))

    def check(self, method: str, identity: Identity) -> None:
        """Check that this identity may call this method.

        Raises:
          PermissionDenied: it may not.
        """
        needed = SCOPES.get(method, ADMIN)
        if not identity.may(needed):
            words = " or ".join(sorted(scope.value for scope in needed))
            raise PermissionDenied(f"{identity.name!r} lacks the scope {words}")
