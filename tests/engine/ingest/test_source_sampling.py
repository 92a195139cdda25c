"""Thinning at the source: what producers leave out is counted, allowed for, and in no archive."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shedder.archive.operations.verify import check
from shedder.client.thinning import SourceThinning
from shedder.engine.standing_queries.dropped_tuples import SECONDS_MAX, Drops
from shedder.errors import BadBatch, SequenceReused
from shedder.streams.batches import encode
from shedder.streams.dropped_counts import Dropped
from shedder.streams.frame import Frame
from tests.engine.flooded import ROWS, START, Flooded, batch_of, strides

BATCHES = 40


class Source:
    """A producer of `Flooded`'s engine that thins its batches, or some of them."""

    def __init__(self, world, share="1/8"):
        self.world = world
        self.thinning = SourceThinning(share)
        self.whole, self.gone = [], 0

    def batch(self):
        return batch_of(len(self.whole), START + len(self.whole) * 1_000)

    def send(self, *, thinned=True):
        whole = self.batch()
        self.whole.append(whole)
        kept, gone = self.thinning.divide(whole, "ts") if thinned else (whole, None)
        self.gone += 0 if gone is None else gone.rows
        return self.again(kept, gone, sequence=len(self.whole) - 1)

    def again(self, kept, gone, *, sequence):
        receipt = self.world.engine.append(
            "s", encode(kept), producer="p", epoch=0, sequence=sequence, left_out=gone
        )
        if group := self.world.machine.log.gather():
            self.world.machine.log.commit(group)
        return receipt


@pytest.fixture
def source(tmp_path):
    world = Flooded(tmp_path / "db", overload="off")
    source = Source(world)
    yield source
    world.engine.close()


@pytest.mark.slow
def test_what_was_left_out_is_counted_and_answers_are_scaled_and_allow_for_it(source):
    for number in range(BATCHES):
        receipt = source.send(thinned=number >= BATCHES // 2)
    source.world.machine.settle()
    engine, sent = source.world.engine, pa.Table.from_batches(source.whole)
    assert receipt.result().rows + receipt.result().dropped == ROWS
    ledger = engine.ledger("s")
    assert ledger.dropped == source.gone > 0.4 * len(sent)
    assert ledger.applied + ledger.dropped == len(sent)
    assert ledger.accepted == ledger.applied
    answer = engine.query("wide").answer()
    assert f"{source.gone:,} tuples were dropped" in " ".join(answer.notes)
    [row] = answer.rows()
    true = pc.sum(sent["x"]).as_py()
    assert row["n_high"] - row["n_low"] == source.gone
    assert row["n_low"] <= len(sent) <= row["n_high"]
    assert row["s_low"] <= true <= row["s_high"]
    assert row["n"] == len(sent)
    assert row["s"] == pytest.approx(true, rel=0.1)
    [once] = engine.execute("SELECT COUNT(*) AS n FROM s").rows()
    assert once["n_bound"] == "none"


@pytest.mark.slow
def test_what_was_left_out_is_still_known_after_a_stop_with_and_without_a_checkpoint(
    tmp_path,
):
    world = Flooded(tmp_path / "db", overload="off")
    source = Source(world)
    for _ in range(BATCHES):
        source.send()
    world.machine.settle()
    [before] = world.rows("wide")
    for checkpointed in (False, True):
        world.killed_and_opened(checkpointed=checkpointed)
        assert world.engine.ledger("s").dropped == source.gone
        assert world.rows("wide") == [before]
    world.engine.close()
    assert check(tmp_path / "db").damages == []


@pytest.mark.slow
def test_thinned_batches_that_wait_are_read_together_as_they_are_one_by_one(tmp_path):
    outcomes, thinning = [], SourceThinning("1/8")
    batches = [batch_of(number, START + number * 1_000) for number in range(BATCHES)]
    divided = [
        (batch, None) if number % 2 else thinning.divide(batch, "ts")
        for number, batch in enumerate(batches)
    ]
    for together in (False, True):
        world = Flooded(tmp_path / str(together), overload="off")
        source = Source(world)
        world.engine.core.ease(coalesces=together)
        for number, (kept, gone) in enumerate(divided):
            source.again(kept, gone, sequence=number)
        found = strides(world)
        drops = world.engine.core.streams["s"].drops
        outcomes.append((drops.to_json(), world.rows("groups"), world.engine.ledger("s")))
        assert (len(found) < BATCHES / 2) == together
        world.engine.close()
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_a_batch_that_comes_again_is_the_same_whatever_was_left_out_of_it_then(source):
    source.send(thinned=False)
    kept, gone = source.thinning.divide(source.whole[0], "ts")
    again = source.again(kept, gone, sequence=0)
    assert again.result().duplicate  # It was whole, and a thinned copy has as many rows in all.
    with pytest.raises(SequenceReused):
        source.again(kept.slice(1), gone, sequence=0)
    source.send()
    whole = source.again(source.whole[1], None, sequence=1)
    assert whole.result().duplicate
    source.world.machine.settle()
    ledger = source.world.engine.ledger("s")
    assert ledger.applied + ledger.dropped == 2 * ROWS
    assert ledger.accepted == ledger.applied + ledger.duplicate == ledger.applied + len(kept) + ROWS


@pytest.mark.slow
def test_whoever_drops_for_days_still_tells_the_seconds_of_today_apart():
    """After 18 hours the newest half of the seconds shared one count, with all that came later."""
    drops, seconds = Drops(), 3 * SECONDS_MAX
    for second in range(seconds):
        drops.add(Dropped(2, ((second, 2),), {}))
    frame = pa.record_batch({"ts": pa.array([(seconds - 1) * 1_000_000], pa.timestamp("us"))})
    drops.let_in(Frame(frame, "ts"))
    for known in (drops, Drops.from_json(json.loads(json.dumps(drops.to_json())))):
        assert known.rows == known.within(None, None) == 2 * seconds
        assert known.within((seconds - 10) * 1_000_000, seconds * 1_000_000) == 20
        assert known.within((seconds + 1) * 1_000_000, None) == 0
        old = known.within(5_000_000, 6_000_000)
        assert 2 <= old < 2 * seconds  # Never less than there were.
        assert len(known.by_time.by_pane) <= SECONDS_MAX


@pytest.mark.slow
def test_all_of_a_batch_may_be_left_out_and_nothing_of_rows_that_follow(source):
    whole = source.batch()
    receipt = source.again(whole.slice(0, 0), Dropped.of(whole, "ts"), sequence=0)
    source.world.machine.settle()
    assert (receipt.result().rows, receipt.result().dropped) == (0, ROWS)
    ledger = source.world.engine.ledger("s")
    assert (ledger.applied, ledger.dropped) == (0, ROWS)
    with pytest.raises(BadBatch, match="none is left out"):
        source.world.engine.append(
            "s",
            encode(whole),
            producer="p+rows",
            epoch=0,
            sequence=0,
            summarised=True,
            left_out=Dropped.of(whole, "ts"),
        )
