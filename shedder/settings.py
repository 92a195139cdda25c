"""Every option of Shedder, once: flags, environment names and docs/settings.md derive from here.

The order is: flags, then environment (`SHEDDER_MEMORY_BYTES=4GiB`), then a TOML file of the same
names in lower case (`shedder serve --config shedder.toml`, or its path in `SHEDDER_CONFIG`), then
the defaults below. Sizes may be written with a unit (`64KiB`, `2 GiB`, `500MB`).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from shedder.errors import BadSetting

PREFIX = "SHEDDER_"
QUEUE_SHARE = 8  # Waiting batches take at most 1/8 of the memory budget.

# Names that begin like settings and are none: where the settings are, what the command line works
# on and as whom, which Java the judge uses.
_OTHER_NAMES = frozenset(
    f"SHEDDER_{name}" for name in ("CONFIG", "DATA", "CONNECT", "TOKEN", "CA", "JAVA", "HISTORY")
)

_KI, _MI, _GI = 1 << 10, 1 << 20, 1 << 30
ROW_QUERY_BYTES_MIN = _MI  # Of row_query_bytes_max.
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": _KI, "mib": _MI, "gib": _GI}


def parse_bytes(value: object) -> object:
    """Read `64KiB` as 65536; what is not text is left to the type's own check."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(
            "a size is a number in digits (no 1e6) with or without a unit: 65536, 64KiB, 500MB"
        )
    number, unit = match[1].replace("_", ""), _UNITS[match[2].lower()]
    if "." in number and unit == 1:
        raise ValueError("a size is a whole number of bytes; parts need a unit: 1536, 1.5KiB")
    return int(number) * unit if "." not in number else int(float(number) * unit)


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(lt=1 << 63)]


def _setting(section: str, default: Any, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"in": section}, **limits)


class Settings(BaseSettings):
    """One frozen set of options. `Settings()` reads the environment; `load` reads a file, too."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    memory_bytes: Bytes = _setting(
        "memory",
        2 * _GI,
        "The budget of the process: synopses, samples, queues, producers, tails, exact worker.",
        ge=256 * _MI,
    )
    sample_rows: int = _setting(
        "memory",
        65_536,
        "Rows of each stream's live sample (bottom-k). Ad-hoc answers with a target use it. "
        "Fewer rows if all samples would take more than an eighth of memory_bytes.",
        ge=64,
        le=1 << 24,
    )
    group_bytes_max: Bytes = _setting(
        "memory",
        32 * _MI,
        "What the groups of one standing aggregate may hold; later groups go to the `others` row.",
        ge=64 * _KI,
    )
    row_query_bytes_max: Bytes = _setting(
        "memory",
        64 * _MI,
        "What a standing row query may hold in operators and in tuples that wait for the "
        "watermark. A query that needs more fails, or keeps fewer keys with ON OVERLOAD SHED. All "
        "of them, with their kept rows: an eighth of memory_bytes. The control budget, row_query, "
        "bytes changes it while the engine runs.",
        ge=ROW_QUERY_BYTES_MIN,
    )
    row_query_expiry: Literal["pattern", "negative", "direct"] = _setting(
        "memory",
        "pattern",
        "How rows leave the time windows of standing row queries. pattern: each operator has the "
        "state that its inputs allow. negative: windows hold their rows and send each again with "
        "weight -1. direct: each step searches all rows for those that have left. Rows are the "
        "same; the last two are for comparisons. Queries with tables, FIRST or LAST have pattern.",
    )
    row_output_bytes_max: Bytes = _setting(
        "memory",
        8 * _MI,
        "Newest rows of a standing row query that are kept for subscribers that resume or are "
        "slow.",
        ge=64 * _KI,
    )
    allocation_seconds: float = _setting(
        "memory",
        5.0,
        "How often memory is shared out anew among standing queries, if anything drifted.",
        gt=0,
    )
    ingest_queue_bytes: Bytes = _setting(
        "memory",
        256 * _MI,
        "Batches accepted and not yet applied; above it, or above an eighth of memory_bytes, "
        "producers are refused until a later time. Summaries that come in parts may have as much.",
        ge=_MI,
    )
    table_bytes: Bytes = _setting(
        "memory",
        512 * _MI,
        "Rows of all tables; above it, or above a quarter of memory_bytes, changes that add to "
        "them are refused.",
        ge=64 * _KI,
    )

    overload: Literal["auto", "on", "off"] = _setting(
        "overload",
        "auto",
        "Whether this engine sheds load when more arrives than can be applied: `on` it does, `off` "
        "it does not (producers wait), `auto` it does if it is served.",
    )

    tenants_file: Path | None = _setting(
        "tenants",
        None,
        "File of tenants' quotas (TOML, `[tenant.NAME]`); a server reads it again when it changes.",
    )
    producers_max: int = _setting(
        "tenants",
        1 << 20,
        "Producers that a tenant may have in all of its streams, active and evicted ones; a stream "
        "with an even share or more refuses new names beyond that.",
        ge=1,
    )

    batch_rows_max: int = _setting(
        "streams", _MI, "Rows that one pushed batch may have.", ge=1, le=_MI
    )
    batch_bytes_max: Bytes = _setting(
        "streams", 16 * _MI, "Bytes that one pushed batch may have.", ge=_KI, le=256 * _MI
    )
    idle_seconds: float = _setting(
        "streams",
        60.0,
        "A stream that holds up row queries of several streams, and sends nothing for this long, "
        "counts as idle: they go on without it, and its older tuples are late. 0: never.",
        ge=0,
    )
    future_us_max: int = _setting(
        "streams",
        86_400_000_000,
        "How far ahead of this machine's clock an event time may move the watermark.",
        ge=0,
    )

    log_segment_bytes: Bytes = _setting(
        "archive", 64 * _MI, "The log starts a new file at this size.", ge=64 * _KI
    )
    run_rows: int = _setting(
        "archive", _MI, "A stream's tail becomes a Parquet run at this many rows.", ge=1
    )
    checkpoint_seconds: float = _setting(
        "archive",
        10.0,
        "Between two checkpoints; a restart replays about this much of the log.",
        gt=0,
    )
    checkpoint_log_bytes: Bytes = _setting(
        "archive",
        256 * _MI,
        "A checkpoint comes sooner when the log has grown by this (and by four times what the "
        "checkpoint holds).",
        ge=_MI,
    )

    backup_directory: Path | None = _setting(
        "archive",
        None,
        "Where `BACKUP TO 'name'` makes its directories; on the file system of the data they cost "
        "next to nothing.",
    )

    scrub_bytes_per_second: Bytes = _setting(
        "archive", 128 * _MI, "How fast `SCRUB` reads runs, so that queries are not slowed.", ge=_KI
    )

    scrub_days: float = _setting(
        "archive",
        7.0,
        "Each run is read against its checksum this often in the background; 0: only by `SCRUB`.",
        ge=0,
    )
    purge_share: float = _setting(
        "archive",
        0.2,
        "A run is written anew without its deleted rows as soon as they are this share of it.",
        gt=0,
        le=1,
    )
    purge_after_s: float = _setting(
        "archive",
        60.0,
        "Runs with fewer deleted rows are purged this long after the stream's last `DELETE`, or "
        "ten times as long after their first one.",
        ge=0,
    )

    exact_memory_bytes: Bytes = _setting(
        "exact",
        512 * _MI,
        "Memory limit of the exact (DuckDB) worker; part of memory_bytes.",
        ge=64 * _MI,
    )
    exact_threads: int = _setting("exact", 2, "Threads of the exact worker.", ge=1, le=256)
    exact_timeout_s: float = _setting(
        "exact",
        30.0,
        "An exact query is killed after this long, unless its caller gave a deadline.",
        gt=0,
    )
    result_rows_max: int = _setting(
        "exact",
        10_000_000,
        "An answer of rows is cut behind this many rows, and says so.",
        ge=1,
    )
    result_bytes_max: Bytes = _setting(
        "exact",
        256 * _MI,
        "An answer of rows is cut before its rows take more than this, and says so. Answers whose "
        "rows were not taken yet may hold four times as much on disk.",
        ge=1 << 16,
    )

    audit: Literal["auto", "on", "off"] = _setting(
        "audit",
        "auto",
        "Whether answers of standing queries are compared with exact ones in the background: `on` "
        "this engine does, `off` it does not, `auto` it does if it is served.",
    )
    audit_share: float = _setting(
        "audit",
        0.01,
        "How much of the time may be spent on it, by one thread that gives way to all others.",
        gt=0,
        le=1,
    )
    audit_rows_max: int = _setting(
        "audit",
        1 << 22,
        "Answers are left alone whose runs and log tail have more rows than this.",
        ge=1,
    )
    audit_memory_bytes: Bytes = _setting(
        "audit",
        128 * _MI,
        "Memory limit of its own exact (DuckDB) worker; part of memory_bytes.",
        ge=64 * _MI,
    )

    query_text_bytes_max: Bytes = _setting(
        "queries", 64 * _KI, "Length of a statement's text.", ge=64
    )
    query_depth_max: int = _setting(
        "queries", 32, "How deep the brackets of a statement may nest.", ge=1, le=50
    )
    query_nodes_max: int = _setting(
        "queries", 1_000, "Nodes that a statement's tree may have.", ge=10, le=10_000
    )
    panes_max: int = _setting(
        "queries",
        10_000,
        "Panes that one window may keep: range / gcd(range, slide); COLLAPSE keeps fewer.",
        ge=1,
    )

    listen: str = _setting(
        "server", "127.0.0.1:7077", "HOST:PORT of the gRPC server; port 0 takes a free one."
    )
    metrics_listen: str | None = _setting(
        "server", None, "HOST:PORT where Prometheus finds metrics; none when not set."
    )
    insecure: bool = _setting(
        "server", False, "Serve without TLS and tokens; refused unless `listen` is loopback."
    )
    tls_cert: Path | None = _setting("server", None, "Certificate chain of the server (PEM).")
    tls_key: Path | None = _setting("server", None, "Private key of the server (PEM).")
    tls_client_ca: Path | None = _setting(
        "server", None, "Ask clients for a certificate signed by this authority (mTLS)."
    )
    tokens_file: Path | None = _setting(
        "server", None, "File of bearer tokens: SHA-256, scopes, expiry."
    )
    connections_max: int = _setting(
        "server",
        4_096,
        "Connections at once; further ones are closed. Fewer if `ulimit -n` leaves no room.",
        ge=1,
    )
    reflection: bool = _setting("server", False, "Offer gRPC reflection.")
    drain_s: float = _setting(
        "server",
        10.0,
        "After SIGTERM: time for running requests, waiting batches and the last checkpoint.",
        gt=0,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "server", "info", "The least severe line that is logged (to stderr)."
    )
    log_format: Literal["auto", "json", "console"] = _setting(
        "server", "auto", "`auto` is console on a terminal and JSON lines elsewhere."
    )

    @property
    def queue_bytes_max(self) -> int:
        """Bytes of waiting batches: `ingest_queue_bytes`, but at most 1/8 of the memory."""
        share = max(self.memory_bytes // QUEUE_SHARE, self.batch_bytes_max)
        return min(self.ingest_queue_bytes, share)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Look for nothing in files but in the one that `load` reads.

        An environment without our names is not read: pydantic looks for each field in it, which
        takes longer than all checks of the values.
        """
        if any(name.upper().startswith(PREFIX) for name in os.environ):
            return init_settings, env_settings
        return (init_settings,)

    @classmethod
    def load(cls, config: Path | None = None, **flags: object) -> Self:
        """Flags (None: not given) over environment over file over defaults.

        Raises:
          BadSetting: a value is not possible, or a name in the file or environment is unknown.
        """
        config = config or (Path(os.environ["SHEDDER_CONFIG"]) if _says("SHEDDER_CONFIG") else None)
        _refuse_unknown_names()
        given: dict[str, Any] = {k: value for k, value in flags.items() if value is not None}
        try:
            if config is not None:
                given = {**_read(config), **EnvSettingsSource(cls)(), **given}
            return cls(**given)
        except ValidationError as error:
            raise BadSetting(_explain(error)) from error


def _says(name: str) -> bool:
    return bool(os.environ.get(name))


def _read(config: Path) -> dict[str, object]:
    try:
        return tomllib.loads(config.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"cannot read the settings file {str(config)!r}: {error}") from error


def _refuse_unknown_names() -> None:
    """A misspelt SHEDDER_ variable would silently leave the default in force."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | _OTHER_NAMES
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            raise BadSetting(
                f"the environment variable {name} is no setting{_nearest(name, known)}"
            )


def _nearest(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else "; docs/settings.md lists them"


def _explain(error: ValidationError) -> str:
    """One line per fault: the name, the value that was given, and what would be right."""
    lines = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            lines.append(f"no setting {name!r}{_nearest(name, set(Settings.model_fields))}")
        else:
            lines.append(
                f"setting {name} = {fault['input']!r}: {fault['msg'].removeprefix('Value error, ')}"
            )
    return "\n".join(lines)


def markdown() -> str:
    """The table of docs/settings.md; `python -m shedder.settings` prints it."""
    lines: list[str] = []
    section = ""
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        if extra["in"] != section:
            section = str(extra["in"])
            lines += [f"\n## {section.capitalize()}\n", "| setting | default | what it does |"]
            lines += ["|---|---|---|"]
        lines.append(f"| `{name}` | {_show(name, field.default)} | {field.description} |")
    return _HEAD + "\n".join(lines) + "\n"


def _show(name: str, default: object) -> str:
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if name.endswith(("_bytes", "_bytes_max")) and isinstance(default, int):
        unit, size = next(
            (u, s) for u, s in (("GiB", _GI), ("MiB", _MI), ("KiB", _KI), ("B", 1)) if default >= s
        )
        return f"{default // size} {unit}"
    return f"`{default:,}`" if isinstance(default, int) else f"`{default}`"


_HEAD = """# Settings

Generated by `make docs` from `shedder/settings.py`; a test fails when this page lags.

Each setting can be given four ways; the first that is there wins:

1. as an argument of the library, `shedder.open("./data", memory_bytes=4 << 30)`, or as a flag of
   `shedder serve` where it has one;
2. in the environment: `SHEDDER_` and the name in capitals, `SHEDDER_MEMORY_BYTES=4GiB`;
3. in a TOML file, `shedder serve --config shedder.toml`, or the file that `SHEDDER_CONFIG` names;
4. by the default below.

Sizes may carry a unit (`64KiB`, `2 GiB`, `500MB`). An unknown name is an error, in the file and in
the environment: a misspelt setting would leave its default in force without a word.
"""


if __name__ == "__main__":
    print(markdown(), end="")
