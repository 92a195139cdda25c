"""EXPLAIN of a standing query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shedder.cql.text.durations import duration_text, timestamp_text
from shedder.cql.text.sampling_fractions import share_text
from shedder.dataflow.graph_text import graph_text
from shedder.dataflow.operator_facts import OperatorFacts
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.standing_queries.standing_query import StandingQuery
from shedder.engine.standing_queries.stream_state import Stream
from shedder.engine.synopsis_plans.thinning_levels import levels_text
from shedder.streams.windows import PaneGrid


def explain_row_query(
    query: RowQuery, operators: Sequence[OperatorFacts], writer: RowWriter | None
) -> str:
    """Return the text of EXPLAIN for a standing row query. On the apply thread.

    writer: inserts the query's rows into a stream; None: nothing does.
    """
    lines = [f"standing row query {query.name}", f"  text: {query.query.text}"]
    inputs = _input_texts(query)
    for each in query.inputs:
        at = each.watermark.value_us
        as_of = "nothing has come" if at is None else f"as of {timestamp_text(at) or f'{at} us'}"
        idle = ", counts as idle" if each.is_idle else ""
        inputs[each.alias] += f"; {as_of}{idle}, {each.late:,} late"
    lines += [f"  {alias}: {text}" for alias, text in inputs.items()]
    lines.append(f"  rows: {query.output.rows:,} made, {query.output.size_bytes:,} bytes kept")
    if writer is not None:
        target = writer.target
        columns = "" if target.is_view else f" ({', '.join(target.columns)})"
        lines.append(f"  inserts into: {target.stream}{columns}, {writer.stored:,} rows")
    lines.append(f"  memory: {query.size_bytes:,} bytes with kept rows")
    lines += [f"  {name}: {text}" for name, text in _choices(query).items()]
    if operators:
        lines += ["", *graph_text(operators)]
    if query.failed:
        lines.append(f"  failed: {query.failed}")
    return "\n".join(lines)


def row_plan_facts(query: RowQuery) -> dict[str, str]:
    """Return the inputs and the choices of a plan, as `explain_row_query` has them, by name."""
    inputs = {f"input {alias}": text for alias, text in _input_texts(query).items()}
    return inputs | _choices(query)


def _choices(query: RowQuery) -> dict[str, str]:
    """Return what statistics decided of a plan; a name that comes again gets a number."""
    facts, names = dict[str, str](), Counter[str]()
    for name, text in query.plan_choices:
        names[name] += 1
        facts[name if names[name] == 1 else f"{name} {names[name]}"] = text
    return facts


def _input_texts(query: RowQuery) -> dict[str, str]:
    """Return what a row query reads of each stream and table, by alias."""
    texts = {it.alias: f"stream {it.stream}, reads {', '.join(it.columns)}" for it in query.inputs}
    for alias, table in query.tables.by_alias.items():
        names = [name.removeprefix(f"{alias}.") for name in table.versions.schema.names]
        texts[alias] = f"table {table.name}, reads {', '.join(names)}"
    return texts


def explain(
    stream: Stream,
    standing_query: StandingQuery,
    costs: Mapping[tuple[int, ...], tuple[float, float]],
) -> str:
    """Return the text of EXPLAIN for a standing query.

    costs: for each shedding unit of the query, ns per tuple in full and now; empty if costs are not
      measured.
    """
    keeps = standing_query.state
    grid = keeps.grid
    lines = [
        f"standing query {keeps.name} on stream {stream.schema.name}",
        f"  text: {keeps.query.text}",
    ]
    if grid.width_us is None:
        lines.append("  window: does not slide; one synopsis per aggregate")
    else:
        assert grid.range_us is not None
        assert grid.slide_us is not None
        lines.append(
            f"  window: range {grid.range_us / 1e6:g} s, slide {grid.slide_us / 1e6:g} s, "
            f"panes of {grid.width_us / 1e6:g} s, {len(keeps.panes)} live"
        )
        lines += _coarsening(grid)
    if keeps.panes.closed.merges_full:
        lines.append(
            "  merges: the cap on groups leaves no room for all; a slide merges up to "
            f"{len(keeps.panes):,} panes (a longer SLIDE or COLLAPSE makes them fewer)"
        )
    if keeps.provider is not None:
        lines.append(f"  shared: reads the panes of {keeps.provider.name}")
    if keeps.consumers:
        names = ", ".join(each.name for each in keeps.consumers)
        lines.append(f"  shared: its panes are read by {names}")
    for aggregate, part in zip(keeps.query.aggregates, keeps.plan.answers, strict=True):
        kind, level = keeps.plan.parts[part].kind.value, keeps.levels[part]
        share = f", reading {share_text(level)} of the tuples" if level else ""
        share += " (forced)" if part in keeps.forced else ""
        lines.append(f"  {aggregate.function.value}: pane synopses ({kind}){share}")
    lines.append(f"  memory: {keeps.size_bytes:,} bytes; thinning: {levels_text(keeps.levels)}")
    for parts, (full, now) in costs.items():
        kinds = ", ".join(keeps.plan.parts[part].kind.value for part in parts)
        lines.append(f"  cost: {kinds}: {now:.1f} ns per tuple, {full:.1f} in full")
    lines += [f"  granted {key}: {value}" for key, value in standing_query.granted.items()]
    return "\n".join(lines)


def _coarsening(grid: PaneGrid) -> list[str]:
    """Return how old panes become coarser, and what that does to the window."""
    coarsening, width_us = grid.coarsening, grid.width_us
    assert width_us is not None
    if coarsening.longest == 1:
        return []
    rungs = [
        f"after {duration_text(kept * width_us)} of {duration_text(grain * width_us)}"
        for kept, grain in zip(coarsening.kept, coarsening.grains[1:], strict=True)
    ]
    resolution = duration_text(coarsening.longest * width_us)
    begins = f"the window begins at a multiple of {resolution}, at or before its range"
    return [f"  old panes: {', '.join(rungs)}; {begins}"]
