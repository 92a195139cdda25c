"""Aggregates of joins by a label of the keys, against exact sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from synopses.joins.join_labels import NONE, JoinLabels, KeyNumbers
from synopses.joins.joined_windows import JoinedWindows
from synopses.joins.pane_counts import PaneRoom
from synopses.model.estimate import Bound
from tests.scale import scaled
from tests.seeds import seed
from tests.sequential import holds
from tests.synopses.joins.joined_panes import CELLS, VALUES, Cell, JoinedPanes, drawn, hashes_of
from tests.truth import RUN_ALARM, gate

CONFIDENCE = 0.95
NAMES = ("pairs", "present", "sum", "average")
LABELS = 64
_LARGE, _SINGLE = 3, 40  # Labels below have a quarter of the keys; from this on, one key each.


def _labels(keys: int) -> np.ndarray:
    """Labels of keys: three of a quarter each, 37 of the last quarter, 24 of one key; some none."""
    names = np.arange(keys)
    labels = np.where(names % 4 < _LARGE, names % 4, _LARGE + names // 4 % (_SINGLE - _LARGE))
    labels[:: keys // (LABELS - _SINGLE)][: LABELS - _SINGLE] = np.arange(_SINGLE, LABELS)
    labels[1::50] = NONE
    return labels


@dataclass(frozen=True, slots=True)
class _World:
    """A world with the labels of its keys, and aggregates of labels of one window."""

    world: JoinedPanes
    side: int
    labels_max: int = LABELS

    @property
    def found(self) -> JoinLabels:
        """The synopsis under test."""
        keys = hashes_of(np.arange(len(self.world.counts[0])))
        order = np.argsort(keys)
        numbers = KeyNumbers(keys[order], _labels(len(keys))[order], LABELS)
        windows = JoinedWindows(self.world.panes, self.world.secrets)
        return JoinLabels(windows, self.side, numbers, self.labels_max)

    def truths(self, label: np.ndarray) -> dict[str, Fraction | None]:
        """Aggregates of the keys that have one of some labels."""
        world = self.world
        has = np.isin(_labels(len(world.counts[0])), label)
        others = np.prod(world.counts[1:], axis=0)[has].tolist()
        pairs, present, total = (
            sum(ours * theirs for ours, theirs in zip(of[has].tolist(), others, strict=True))
            for of in (world.counts[0], *world.values)
        )
        total = Fraction(total, 8)
        average = total / present if present else None
        return {"pairs": pairs, "present": present, "sum": total, "average": average}

    def missed(self, aggregate: str) -> dict[int, bool]:
        """Return which rows that are shown do not hold the truth; NONE is the last row."""
        labels = self.found
        ask = getattr(labels, aggregate)
        found = ask(confidence=CONFIDENCE) if aggregate == "pairs" else ask(0, 0, confidence=0.95)
        assert len(found) == len(labels.labels) + labels.has_others
        rows = {int(each): np.array([each]) for each in labels.labels}
        if labels.has_others:
            rows[NONE] = np.setdiff1d(np.arange(NONE, LABELS), labels.labels)
        missed = {}
        for at, (label, of) in enumerate(rows.items()):
            truth = self.truths(of)
            assert label == NONE or truth["pairs"] > 0
            if truth[aggregate] is None or not truth["present"]:
                continue
            slack = 1e-9 * abs(float(truth[aggregate])) if aggregate in ("sum", "average") else 0
            low, high = found.low[at] - slack, found.high[at] + slack
            missed[label] = not low <= truth[aggregate] <= high
        return missed


def _kind(label: int) -> str:
    if label == NONE:
        return "others"
    return "large" if label < _LARGE else "small" if label < _SINGLE else "single"


@pytest.mark.parametrize("aggregate", NAMES)
def test_labels_that_are_shown_have_intervals_that_hold(aggregate):
    """One label of each kind in a trial: whether it is shown, and its interval misses."""
    kind = NAMES.index(aggregate)

    def is_held(trial: int) -> bool:
        draw = np.random.default_rng(seed("labels", aggregate, trial))
        cell = replace(CELLS[draw.integers(len(CELLS))], rows=600, values=VALUES[kind % 3])
        world = _World(drawn(cell, seed("label world", aggregate, trial)), draw.integers(2))
        missed = _World(world.world, world.side, (10, LABELS)[trial % 2]).missed(aggregate)
        kinds: dict[str, list[bool]] = {}
        for label, each in missed.items():
            kinds.setdefault(_kind(label), []).append(each)
        return not any(draw.choice(each) for each in kinds.values())

    assert holds(is_held, 1.0 - 4 * (1.0 - CONFIDENCE), trials=scaled(60, 1_000))


@pytest.mark.parametrize("side", [0, 1])
def test_where_all_keys_find_room_all_labels_are_exact(side):
    cell = Cell(0.8, True, "steady", PaneRoom(16, 4_096, 256), values="signed")
    world = _World(drawn(cell, seed("exact labels", side)), side)
    shown = [each for each in range(LABELS) if world.truths(np.array([each]))["pairs"]]
    for labels_max in (LABELS, 10):
        few = _World(world.world, side, labels_max)
        pairs = few.found.pairs(confidence=CONFIDENCE)
        assert (pairs.bound == Bound.EXACT).all()
        assert pairs.value.sum() == world.world.truth("pairs")
        for aggregate in NAMES:
            assert not any(few.missed(aggregate).values())
        assert len(few.found.labels) == min(len(shown), labels_max)


def test_a_join_without_panes_has_no_labels():
    world = drawn(Cell(0.8, True, "steady", PaneRoom(16, 64, 256)), seed("no labels"))
    found = _World(replace(world, panes=(world.panes[0], [])), 0).found
    assert len(found.pairs(confidence=CONFIDENCE)) == len(found.labels) == 0
    assert len(found.average(0, 0, confidence=CONFIDENCE)) == 0


@pytest.mark.nightly  # 40 cells of 300 trials: 40 minutes of CPU.
@pytest.mark.timeout(7200)
def test_intervals_of_labels_hold_in_each_kind_of_world():
    trials, missed = 300, {}
    for at, cell in enumerate(CELLS[::3]):
        count: dict[tuple[str, str], int] = {}
        for number in range(trials):
            world = _World(drawn(cell, seed("label cell", at, number)), number % 2)
            for aggregate in NAMES:
                found = world.missed(aggregate)
                for label in (0, 1, _LARGE, _LARGE + 1, _SINGLE, NONE):
                    key = (aggregate, str(label))
                    count[key] = count.get(key, 0) + found.get(label, False)
        most = trials - gate(trials, CONFIDENCE, RUN_ALARM)
        missed |= {(at, *each): misses for each, misses in count.items() if misses > most}
    assert missed == {}
