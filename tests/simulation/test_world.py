"""Worlds: the ledger, acknowledgements, crashes, conduct, and that a seed replays all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest

from shedder.queries.answers.database_api import Receipt
from shedder.simulation.html_report import to_html
from shedder.simulation.tuple_generator import STREAM
from shedder.simulation.world import World
from tests.documents import ROOT
from tests.simulation.worlds import QUERY, run, scenario


@pytest.mark.slow
def test_a_calm_world_reads_everything_and_is_right():
    world, result = run(scenario())
    assert result.held, result.problems
    assert result.totals["offered"] == result.totals["applied"] == world.truths[STREAM].rows > 4_000
    assert result.answers["q"].checked >= 2
    assert result.answers["q"].exact >= 4
    assert result.totals["thinned_share"] == 0


@pytest.mark.slow
def test_overload_thins_and_full_precision_comes_back():
    flood = {"shape": "flash", "rate": 2_000, "times": 5, "from_s": 1, "for_s": 2}
    world, result = run(
        scenario(
            seconds=6,
            producers=[{"arrivals": flood}],
            machine={"scale": 1_000, "sample_rows": 64, "disk_bytes_per_s": "16GiB"},
            costs={"factor": {"q": 20}},
        )
    )
    assert result.held, result.problems
    assert result.totals["thinned_share"] > 0.1
    assert result.answers["q"].thinned_answers > 0
    assert 0 < result.totals["full_after_s"] < 10
    assert set(world.series.column("share.q")[-5:]) == {1.0}


@pytest.mark.slow
@pytest.mark.parametrize(("answer_us", "put_off"), [(0.0, False), (100_000.0, True)])
def test_windows_are_put_off_only_where_answers_take_a_share_worth_having(answer_us, put_off):
    flood = {"shape": "flash", "rate": 2_000, "times": 20, "from_s": 0.5, "for_s": 3}
    machine = {"scale": 1_000, "disk_bytes_per_s": "64GiB", "answer_us": answer_us}
    world, result = run(scenario(seconds=5, producers=[{"arrivals": flood}], machine=machine))
    assert result.held, result.problems
    assert result.totals["refused_batches"] > 0  # It went on from there all the same.
    [stream] = world.server.streams.values()
    assert (stream.queries["q"].deferred_windows_ever > 0) == put_off


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    planned = scenario(crashes=[{"at_s": 1.5, "after_calls": 3}])
    first, second = run(planned)[1], run(planned)[1]
    assert first.to_json() == second.to_json()
    assert to_html(first) == to_html(second)
    other = run(scenario(seed=2, crashes=[{"at_s": 1.5, "after_calls": 3}]))[1]
    assert other.series.rows != first.series.rows


@pytest.mark.slow
@pytest.mark.parametrize("after_calls", [None, 0, 1, 2])
def test_a_crash_loses_nothing_that_was_acknowledged(after_calls):
    crash = {"at_s": 1.5} if after_calls is None else {"at_s": 1.5, "after_calls": after_calls}
    world, result = run(scenario(crashes=[crash]))
    assert result.held, result.problems
    assert world.server.lives == 2
    assert min(world.series.column("applied_per_s")) == 0
    assert result.totals["acknowledged"] == result.totals["offered"] == result.totals["applied"]


@pytest.mark.slow
def test_a_process_that_dies_while_it_recovers_recovers_later():
    crashes = [{"at_s": 1.0}, {"at_s": 1.5, "after_calls": 0}]  # It is down from 1 to 2 s.
    world, result = run(scenario(crashes=crashes))
    assert result.held, result.problems
    assert world.server.lives == 3
    assert result.totals["acknowledged"] == result.totals["offered"] == result.totals["applied"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "receipt",
    [
        pytest.param(Receipt(STREAM, position=1 << 40, rows=0), id="acknowledged"),
        pytest.param(Receipt(STREAM, position=0, rows=1 << 40), id="taken"),
    ],
)
def test_a_lost_acknowledgement_is_noticed(tmp_path, receipt):
    """The invariant itself: a receipt for what is nowhere is found out."""
    world = World(scenario(crashes=[{"at_s": 1.5}]), tmp_path)
    counted = world.server.counted[STREAM]
    world.server.on_down.append(partial(counted.acknowledge, receipt, followed=False))
    world.run()
    assert any("acknowledged tuples" in problem for problem in world.problems)


@pytest.mark.slow
def test_conduct_is_in_the_ledger():
    group = {"duplicates": 0.5, "gaps": 0.5, "disorder_s": 1.0, "arrivals": {"rate": 2_000}}
    world, result = run(scenario(producers=[group]))
    assert result.held, result.problems
    assert STREAM in world.ledgers
    assert world.ledgers[STREAM].duplicate > 0
    assert world.ledgers[STREAM].refused_batches > 0
    assert world.ledgers[STREAM].late > 0


@pytest.mark.slow
def test_what_went_as_summaries_is_in_answers_at_once_and_in_the_archive_later():
    flood = {"shape": "flash", "rate": 2_000, "times": 20, "from_s": 0.5, "for_s": 2}
    world, result = run(
        scenario(
            producers=[{"helps": True, "count": 2, "every_ms": 100, "arrivals": flood}],
            machine={"scale": 1_000, "sample_rows": 64, "disk_bytes_per_s": "64GiB"},
            costs={"factor": {"q": 20}},
            crashes=[{"at_s": 2.0}],
        )
    )
    assert result.held, result.problems
    ledger = world.ledgers[STREAM]
    assert world.server.merges > 4
    assert (ledger.summarised, ledger.to_follow) == (0, 0)
    assert result.totals["offered"] == ledger.applied == world.truths[STREAM].position


@pytest.mark.slow
@pytest.mark.parametrize("helps", [False, True])
def test_what_is_thinned_at_the_source_is_lost_or_follows_and_answers_know_it(helps):
    flood = {"shape": "flash", "rate": 2_000, "times": 20, "from_s": 0.5, "for_s": 2}
    group = {"helps": helps, "thinning": "1/8", "count": 2, "every_ms": 100, "arrivals": flood}
    world, result = run(
        scenario(
            producers=[group | {"duplicates": 0.2}],
            machine={"scale": 1_000, "sample_rows": 64, "disk_bytes_per_s": "64GiB"},
            costs={"factor": {"q": 20}},
            crashes=[{"at_s": 2.0, "after_calls": 3}],
        )
    )
    assert result.held, result.problems
    ledger = world.ledgers[STREAM]
    assert (ledger.dropped > 5_000) == (not helps)
    assert world.server.lives == 2
    assert (world.server.merges > 4) == helps
    assert (ledger.summarised, ledger.to_follow) == (0, 0)
    assert result.totals["offered"] == ledger.applied + ledger.dropped


@pytest.mark.slow
def test_tenants_have_ledgers_and_quotas_of_their_own():
    text = QUERY.replace("FROM requests", "FROM requests_of_{}")
    names = ("greedy", "modest")
    group = {"arrivals": {"shape": "steady", "rate": 2_000}, "patience_s": 0.5}
    world, result = run(
        scenario(
            tenants=[{"name": "greedy", "rows_per_s": 200}, {"name": "modest"}],
            queries=[{"name": name, "sql": text.format(name)} for name in names],
            producers=[group | {"name": name, "tenant": name} for name in names],
        )
    )
    assert result.held, result.problems
    greedy, modest = (world.ledgers[f"requests_of_{name}"] for name in names)
    assert greedy.refused_batches > 0
    lasted_s = world.agenda.now_us / 1e6  # Clients that wait for a slot go on after the arrivals.
    assert greedy.applied <= 200 * lasted_s + 100  # One batch may be owed.
    assert greedy.applied < modest.applied
    assert modest.refused_batches == 0
    assert world.ledgers[STREAM].applied == 0


@pytest.mark.slow
def test_a_full_queue_refuses_and_patience_ends():
    flood = {"shape": "steady", "rate": 50_000}
    world, result = run(
        scenario(
            control="none",
            machine={"scale": 3_000, "sample_rows": 64, "ingest_queue_bytes": "1MiB"},
            producers=[{"patience_s": 0.5, "retry": "greedy", "arrivals": flood}],
        )
    )
    assert not result.problems
    assert result.totals["refusals"] > 0
    assert result.totals["given_up"] > 0
    assert result.totals["offered"] == result.totals["acknowledged"] + result.totals["given_up"]
    assert world.server.refusals > 0


@pytest.mark.slow
def test_levels_that_are_forced_are_in_the_answers():
    _, result = run(scenario(control="none", forces=[{"at_s": 0.5, "level": 3}]))
    assert result.held, result.problems
    assert result.answers["q"].thinned_answers > 0
    assert result.answers["q"].intervals > 0


@pytest.mark.slow
def test_a_world_with_coins_of_its_own_says_so():
    text = (
        "SELECT QUANTILE(value, 0.5) AS m FROM requests "
        "[RANGE INTERVAL '1' SECOND SLIDE INTERVAL '1' SECOND] WITHIN 0.02 RANK"
    )
    _, result = run(scenario(queries=[{"name": "q", "sql": text}]))
    assert result.held, result.problems
    assert not result.replays
    assert "coins" in to_html(result)
    assert run(scenario(seconds=1))[1].replays


@pytest.mark.slow
def test_another_process_tells_the_same(tmp_path):
    """Whatever order sets have there: hashes of texts are salted otherwise."""
    outputs = []
    for salt in ("1", "2"):
        out = tmp_path / f"{salt}.json"
        path = ROOT / "examples/simulations/crashes.toml"
        command = ["simulate", str(path), "--seconds", "6", "-o", str(out)]
        subprocess.run(
            [sys.executable, "-m", "shedder.cli.main", *command],
            env={**os.environ, "PYTHONHASHSEED": salt},
            check=False,
            capture_output=True,
        )
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
