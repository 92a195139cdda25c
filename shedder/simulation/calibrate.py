"""Calibration: costs of a scenario's queries, measured on this machine, as scenario tables."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.simulation.costs import CostModel
from shedder.simulation.scenario import Scenario, ScenarioCosts, ScenarioMachine
from shedder.simulation.tuple_generator import STREAM, Payload, create
from shedder.simulation.virtual_environment import VirtualEnvironment
from shedder.streams.batches import encode
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

_ROWS = 10_000
_BATCHES = 30
_WRITES = 15
_BULK_BYTES = 8 << 20


def measured(scenario: Scenario, directory: Path) -> str:
    """The tables [costs], [costs.factor] and, as comments, what belongs into [machine].

    Args:
      scenario: whose stream and queries are measured, in full, one core and one query at a time.
      directory: for the engine; the disk is measured where temporary files are.
    """
    machine = VirtualEnvironment(scenario.seed, 0)
    with Engine.open(directory / "measured", machine=machine) as engine:
        engine.execute(create(scenario.stream))
        batches = _batches(scenario)
        base_ns = _least(_applying(engine, machine, batches)) / _ROWS
        factors, answers_us = {}, [0.0]
        model = CostModel(ScenarioCosts(), ScenarioMachine())
        for query in scenario.queries:
            engine.register(query.name, query.sql)
            _, standing_query = engine.core.standing_query(query.name)
            supposed_ns = model.in_full_ns(standing_query.state)
            found_ns = _least(_reading(standing_query, batches)) / _ROWS
            factors[query.name] = max(found_ns / supposed_ns, 0.01)
            answers_us.append(_least(_answering(engine, standing_query)) / 1e3)
        return _text(base_ns, factors, max(answers_us), *_disk())


def _text(
    base_ns: float, factors: dict[str, float], answer_us: float, fsync_ms: float, rate: float
) -> str:
    lines = [
        "# Measured by `shedder simulate --calibrate`; into [machine] belong:",
        f"#   answer_us = {answer_us:.0f}",
        f"#   fsync_ms = {fsync_ms:.3g}",
        f"#   disk_bytes_per_s = {rate:.0f}",
        "[costs]",
        f"base_ns = {base_ns:.3g}",
        "[costs.factor]",
        *(f"{name} = {factor:.3g}" for name, factor in factors.items()),
    ]
    return "\n".join(lines) + "\n"


def _batches(scenario: Scenario) -> list[pa.RecordBatch]:
    payload = Payload(scenario.stream, scenario.seconds)
    rng = np.random.default_rng(scenario.seed)
    return [
        payload.draw(rng, _ROWS, start_us=1_000 * at, end_us=1_000 * (at + 1), zero_us=0)
        for at in range(_BATCHES)
    ]


def _applying(
    engine: Engine, machine: VirtualEnvironment, batches: Sequence[pa.RecordBatch]
) -> Iterable[int]:
    """ns of applying each batch, without queries."""
    for batch in batches:
        intake = engine.admission.intake(STREAM)
        intake.append(encode(batch), producer="", epoch=0, sequence=None)
        machine.log.commit(machine.log.gather())
        yield _timed(machine.applier.step)


def _reading(standing_query: StandingQuery, batches: Sequence[pa.RecordBatch]) -> Iterable[int]:
    """ns of reading each batch into a query's synopses."""
    for number, batch in enumerate(batches):
        frame = Frame(batch, "ts", positions=Positions(1, _ROWS * number))
        yield _timed(lambda: standing_query.state.apply(frame, watermark_us=None, limit_us=None))  # noqa: B023


def _answering(engine: Engine, standing_query: StandingQuery) -> Iterable[int]:
    """ns of one answer, several times."""
    stream = engine.core.stream(STREAM)
    for _ in range(_WRITES):
        yield _timed(lambda: standing_query.refresh(stream.facts()))


def _disk() -> tuple[float, float]:
    """ms of a small write that is made durable, and bytes/s of large ones."""
    with tempfile.NamedTemporaryFile() as file:

        def append(size_bytes: int) -> None:
            file.write(bytes(size_bytes))
            file.flush()
            os.fdatasync(file.fileno())

        def write(size_bytes: int) -> int:
            return _timed(partial(append, size_bytes))

        small = sorted(write(4_096) for _ in range(_WRITES))[_WRITES // 2]
        bulk = _least(write(_BULK_BYTES) for _ in range(4))
        return small / 1e6, _BULK_BYTES / max(bulk - small, 1) * 1e9


def _timed(work: Callable[[], object]) -> int:
    began = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - began


def _least(times: Iterable[int]) -> float:
    """Return the least of many times: the time without interference by other processes."""
    return float(min(times))
