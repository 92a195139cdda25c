"""Simulation scenarios: machine, streams, queries, producers, faults and claims."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from shedder.errors import BadSetting
from shedder.settings import Bytes
from shedder.simulation.scenario_errors import explained

_DAY_S = 86_400


def _never_or_not_too_often(seconds: float) -> float:
    if 0 < seconds < 0.01:
        raise ValueError("Input should be 0 (never), or at least 0.01")
    return seconds


# Virtual time is counted in microseconds, and a world ends: no time is longer than the longest
# world, and nothing comes again so often that a second of it would never end.
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=_DAY_S)]
Span = Annotated[float, Field(ge=0.01, le=_DAY_S)]
Every = Annotated[Seconds, AfterValidator(_never_or_not_too_often)]
_TENANT = r"^([a-z][a-z0-9_]{0,30})?$"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Arrivals(_Table):
    """How many tuples per second a group of producers sends, over time.

    shape: steady; poisson (steady in the mean, Poisson in each interval); bursts (on and off, for
    exponentially distributed times of mean on_s and off_s, at `times` the rate while on); flash
    (from from_s on for for_s seconds, ramping up over ramp_s, `times` the rate); diurnal (a sine
    over period_s, down to `low` of the rate); worldcup98 (the days of the 1998 World Cup's web
    site, hour by hour, fitted into period_s; the rate is its mean).
    rate: tuples/s, of all producers of the group together.
    """

    shape: Literal["steady", "poisson", "bursts", "flash", "diurnal", "worldcup98"] = "poisson"
    rate: float = Field(gt=0, le=10_000_000)
    times: float = Field(default=10.0, gt=0, le=1_000)
    from_s: Seconds = 0.0
    for_s: Span = 10.0
    ramp_s: Seconds = 0.0
    on_s: Span = 1.0
    off_s: Span = 4.0
    period_s: Span = 60.0
    low: Share = 0.1


class Producers(_Table):
    """Clients that behave alike; each sends its share of the group's arrivals, in batches.

    every_ms: how often each sends what has come. duplicates: chance that a batch is sent again
    once it was acknowledged. gaps: chance that a batch is sent before the one it follows.
    disorder_s: event times are up to so much before their sending. slow_s: batches are held back
    for so long. retry: how a refusal is answered: backoff (as by the library: when the server has
    said, and a little later) or greedy (again after 10 ms). patience_s: a batch that was not taken
    for so long is given up. helps: while the server asks for help they send summaries, and the rows
    of them later. thinning: meanwhile this share of the rows is summarised, or, if they do not
    help, sent, and the others are lost. tenant: to whose stream they send; "" is the default
    tenant.
    """

    name: str = Field(default="clients", pattern=r"^[a-z][a-z0-9_-]{0,30}$")
    count: int = Field(default=1, ge=1, le=1_000)
    arrivals: Arrivals
    every_ms: float = Field(default=50.0, ge=0.1, le=60_000)
    duplicates: Share = 0.0
    gaps: Share = 0.0
    disorder_s: Seconds = 0.0
    slow_s: Seconds = 0.0
    retry: Literal["backoff", "greedy"] = "backoff"
    patience_s: Span = 30.0
    helps: bool = False
    thinning: Literal["1", "1/2", "1/4", "1/8", "1/16"] = "1"
    tenant: str = Field(default="", pattern=_TENANT)


class Tenant(_Table):
    """Tenant with a stream of its own, `requests_of_NAME`, and its limits (docs/operations.md).

    rows_per_s, bytes_per_s: rates that it may send; None means no limit.
    cores: CPU of its queries' synopses, in cores; a fraction is a limit, too.
    weight: its share when resources are short.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    rows_per_s: float | None = Field(default=None, gt=0)
    bytes_per_s: float | None = Field(default=None, gt=0)
    cores: float | None = Field(default=None, gt=0)
    weight: float = Field(default=1.0, gt=0, le=1_000)


class ScenarioStream(_Table):
    """What the tuples are: ts, key (Zipf), value (lognormal), size (rounded, of the key), ok. The
    stream of each tenant is like that.

    keys: how many there are. skew: Zipf's exponent; 0 is uniform. sigma: of the lognormal values.
    drift_s: the popular keys are others after so long; 0: never. skew_to: the exponent at the end.
    on_overload: the stream's policy.
    """

    lateness_s: Seconds = 1.0
    keys: int = Field(default=10_000, ge=1, le=10_000_000)
    skew: float = Field(default=1.1, ge=0, le=5)
    skew_to: float | None = Field(default=None, ge=0, le=5)
    sigma: float = Field(default=1.0, ge=0, le=4)
    drift_s: Every = 0.0
    on_overload: Literal["THIN", "BLOCK", "DROP", "DROP LEAST value", "DROP OLDEST"] = "THIN"


class ScenarioMachine(_Table):
    """What the world runs on, in virtual time.

    scale: tuples, and their costs and bytes, count so many times: 50,000 tuples/s at scale 100
    queue as 5 million do. cores_share: of a core that applying has. fsync_ms, disk_bytes_per_s: of
    the log. answer_us: what the answer of one window takes. run_ms: what writing a run takes,
    beside all others. restart_s: between a crash and the next start. idle_seconds: of silence,
    after which row queries of several streams go on without a stream. row_query_bytes: of each
    row query, `row_query_bytes_max`.
    """

    scale: float = Field(default=1.0, gt=0, le=10_000)
    core_share: float = Field(default=1.0, gt=0, le=1)
    fsync_ms: float = Field(default=1.0, ge=0, le=60_000)
    disk_bytes_per_s: Bytes = Field(default=200 << 20, ge=1 << 10)
    answer_us: float = Field(default=300.0, ge=0, le=60_000_000)
    run_ms: float = Field(default=100.0, ge=0, le=60_000)
    restart_s: Seconds = 1.0
    memory_bytes: Bytes = Field(default=256 << 20, ge=256 << 20)
    ingest_queue_bytes: Bytes = Field(default=4 << 20, ge=1 << 20)
    sample_rows: int = Field(default=4096, ge=64, le=1 << 20)
    run_rows: int = Field(default=1 << 20, ge=1)
    checkpoint_seconds: Span = 10.0
    idle_seconds: Seconds = 60.0
    row_query_bytes: Bytes = Field(default=64 << 20, ge=1 << 20)


class ScenarioCosts(_Table):
    """CPU per tuple, ns: what `shedder simulate --calibrate` prints, or what you suppose.

    base_ns: applying a tuple, beside the synopses. factor: by query, how many times the costs of
    the profiles its synopses take.
    """

    base_ns: float = Field(default=60.0, ge=0, le=1_000_000_000)
    factor: dict[str, Annotated[float, Field(gt=0, le=1_000)]] = Field(default_factory=dict)


class ScenarioQuery(_Table):
    """A standing query over `requests (ts TIMESTAMP, key BIGINT, value DOUBLE, size BIGINT, ok
    BOOLEAN)`, or over a tenant's `requests_of_NAME`; its window has a RANGE.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    sql: str


class ScenarioRows(_Table):
    """A standing row query over `requests`, streams of tenants, and the table `clients`.

    sql: in CQL; its result is a relation. truth: the same in DuckDB's SQL, over a table for each
    alias of a stream; these have the tuples of the windows, and a column `shard` with the value
    that `clients` had for the key when the tuple was written to the log. windows: by alias, the
    length in seconds. slide_s: of the windows; the relation is as of its multiples; 0: of every
    instant. With CONFIDENCE, the relation is one row of numbers, and their intervals are judged.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    sql: str
    truth: str
    windows: dict[str, Span]
    slide_s: Seconds = 0.0


class ScenarioTable(_Table):
    """Changes of the table `clients (key BIGINT PRIMARY KEY, shard BIGINT)`.

    every_s: time between two changes. rows: rows that a change puts, of random keys.
    """

    every_s: Span
    rows: int = Field(default=100, ge=1, le=100_000)


class Stall(_Table):
    """The disk does nothing from at_s on, for for_s seconds."""

    at_s: Seconds
    for_s: Span


class Crash(_Table):
    """The process dies at at_s: between two steps, or after_calls of the disk later."""

    at_s: Seconds
    after_calls: int | None = Field(default=None, ge=0, le=10_000)


class Force(_Table):
    """From at_s on a query (all, when none is named) reads the share 2^-level."""

    at_s: Seconds
    level: int = Field(ge=0, le=20)
    query: str | None = None


class Claims(_Table):
    """What must come out, beside what always must (the invariants).

    goodput_min: acknowledged tuples, of those offered. given_up_max: share of tuples given up.
    queue_age_s_max, ack_p99_s_max: never longer, and for 99 % of batches no longer. error_max:
    mean relative error of all values. thinned_max, thinned_min: share of tuples that the most
    thinned query skipped. refused_min: batches. full_within_s: so long after the last overload
    nothing is thinned any more. late_min: tuples. dropped_min, dropped_max: share of tuples that
    were dropped at the door. merges_min: summaries that were taken in place of batches.
    row_answers_min: answers of row queries that were compared. row_intervals_min: intervals of
    row queries that were judged; row_coverage_min: share of these that held.
    """

    goodput_min: Share | None = None
    given_up_max: Share | None = None
    queue_age_s_max: float | None = Field(default=None, gt=0)
    ack_p99_s_max: float | None = Field(default=None, gt=0)
    error_max: float | None = Field(default=None, ge=0)
    thinned_max: Share | None = None
    thinned_min: Share | None = None
    refused_min: int | None = Field(default=None, ge=0)
    late_min: int | None = Field(default=None, ge=0)
    duplicates_min: int | None = Field(default=None, ge=0)
    full_within_s: float | None = Field(default=None, gt=0)
    dropped_min: Share | None = None
    dropped_max: Share | None = None
    merges_min: int | None = Field(default=None, ge=0)
    row_answers_min: int | None = Field(default=None, ge=0)
    row_intervals_min: int | None = Field(default=None, ge=0)
    row_coverage_min: Share | None = None


class Scenario(_Table):
    """All of one file. seconds: virtual ones. seed: replays it, byte by byte."""

    title: str
    about: str = ""
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    seconds: float = Field(gt=0, le=86_400)
    control: Literal["feedback", "none"] = "feedback"
    truth_every: int = Field(default=1, ge=1)
    stream: ScenarioStream = ScenarioStream()
    machine: ScenarioMachine = ScenarioMachine()
    costs: ScenarioCosts = ScenarioCosts()
    queries: tuple[ScenarioQuery, ...] = Field(min_length=1, max_length=64)
    rows: tuple[ScenarioRows, ...] = Field(default=(), max_length=16)
    clients: ScenarioTable | None = None
    producers: tuple[Producers, ...] = Field(min_length=1, max_length=64)
    tenants: tuple[Tenant, ...] = Field(default=(), max_length=16)
    stalls: tuple[Stall, ...] = ()
    crashes: tuple[Crash, ...] = ()
    forces: tuple[Force, ...] = ()
    claims: Claims = Claims()

    @model_validator(mode="after")
    def _names_are_known_and_different(self) -> Self:
        for what, names in (
            ("queries", [each.name for each in self.queries] + [each.name for each in self.rows]),
            ("producers", [group.name for group in self.producers]),
            ("tenants", [tenant.name for tenant in self.tenants]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {', '.join(twice)}: each needs a name of its own")
        known = {query.name for query in self.queries}
        named = {force.query for force in self.forces} | set(self.costs.factor)
        unknown = sorted(named - known - {None}, key=str)
        if unknown:
            raise ValueError(f"no query {unknown[0]!r}; there are {', '.join(sorted(known))}")
        tenants = {tenant.name for tenant in self.tenants}
        strange = sorted({group.tenant for group in self.producers} - tenants - {""})
        if strange:
            there = ", ".join(sorted(tenants)) or "none"
            raise ValueError(f"no tenant {strange[0]!r}; there are {there}")
        return self

    @model_validator(mode="after")
    def _rows_have_a_truth(self) -> Self:
        """Refuse row queries where tuples of the log are not the tuples that they read."""
        drops = self.stream.on_overload.startswith("DROP")
        summarise = [group.name for group in self.producers if group.helps or group.thinning != "1"]
        if self.rows and (drops or summarise):
            what = f"producers {summarise[0]}" if summarise else f"policy {self.stream.on_overload}"
            raise ValueError(f"{what}: beside `rows` no tuple may be summarised or dropped")
        return self

    @classmethod
    def read(cls, path: Path) -> Self:
        """A scenario from its file.

        Raises:
          BadSetting: it cannot be read, or says what is not possible; a line per mistake.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BadSetting(f"cannot read the scenario {str(path)!r}: {error}") from error
        return cls.of(values)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """A scenario from plain values, as a file has them.

        Raises:
          BadSetting: it says what is not possible; a line per mistake.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise BadSetting(explained(error, cls)) from error
