"""DISTINCT by expiry (delta* of Golab 2006): its rows, their order, and its memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.dataflow.changes import NEVER_US, ChangeBatch
from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.expiry.distinct_rows import DistinctRows
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.multiplicities import Multiplicities
from shedder.dataflow.multiplicity_kernels import Multiplicity
from tests.cql.relations import Relations, stream
from tests.scale import scaled
from tests.seeds import seed

SCHEMA = pa.schema([("k", pa.int64())])
LINK = {"link": (stream("link", src=ColumnType.BIGINT, dst=ColumnType.BIGINT), [])}


def weak_rows(dice: np.random.Generator, rows: int, values: int, lives: int) -> ChangeBatch:
    """Rows in the order of event times; births and expiries are in any order, some never expire."""
    ts = np.sort(dice.integers(0, 3_000, rows))
    born = ts + dice.integers(1, 60, rows)
    expires = born + dice.integers(0, lives, rows)
    expires[dice.random(rows) < 0.001] = NEVER_US
    columns = pa.record_batch([pa.array(dice.integers(0, values, rows))], schema=SCHEMA)
    return ChangeBatch(columns, ts, born, expires, np.ones(rows, np.int64))


def steps(dice: np.random.Generator, rows: ChangeBatch) -> list[tuple[int, ChangeBatch]]:
    """(as_of_us, rows with an earlier event time), with steps of 1 us up to 1,000 us."""
    made, first, as_of = [], 0, 0
    while as_of < 9_000:
        as_of += int(dice.choice([1, 7, 90, 1_000]))
        end = int(np.searchsorted(rows.ts_us, as_of))
        made.append((as_of, rows.take(np.arange(first, end))))
        first = end
    return made


@pytest.mark.parametrize(("values", "lives"), [(3, 40), (80, 40), (80, 2_000), (3_000, 2_000)])
def test_values_are_in_the_output_while_one_of_their_rows_lives(values, lives):
    for trial in range(scaled(3, 50)):
        dice = np.random.default_rng(seed("distinct", values, lives, trial) % 2**32)
        rows = weak_rows(dice, 1_500, values, lives)
        operator = DistinctRows(SCHEMA)
        made = ChangeBatch.concat([operator.apply(*step) for step in steps(dice, rows)])
        assert (np.diff(made.born_us) >= 0).all()
        of = made.columns["k"].to_numpy()
        for value in range(min(values, 40)):
            live = np.zeros(9_002, np.int64)
            mine = rows.columns["k"].to_numpy() == value
            for born, expires in zip(rows.born_us[mine], rows.expires_us[mine], strict=True):
                live[born : min(expires, 9_000) + 1] = 1
            expected = [(e, live[e] - live[e - 1]) for e in np.flatnonzero(np.diff(live)) + 1]
            its = of == value
            found = [*zip(made.born_us[its].tolist(), made.weight[its].tolist(), strict=True)]
            assert [each for each in expected if each[0] <= 9_000] == [
                each for each in found if each[0] <= 9_000
            ]


@pytest.mark.parametrize(("values", "lives"), [(3, 40), (80, 40), (80, 2_000), (3_000, 2_000)])
def test_changes_and_their_order_are_those_of_counting_rows(values, lives):
    dice = np.random.default_rng(seed("distinct order", values, lives) % 2**32)
    rows = weak_rows(dice, 3_000, values, lives)
    operator, counting = DistinctRows(SCHEMA), Multiplicities(Multiplicity.DISTINCT, SCHEMA)
    for step in steps(dice, rows):
        made, expected = operator.apply(*step), counting.apply(*step)
        assert made.columns == expected.columns
        for name in ("ts_us", "born_us", "expires_us", "weight"):
            assert (getattr(made, name) == getattr(expected, name)).all(), name


def filled(text: str, columns: list[np.ndarray], expiry: Expiry) -> dict[str, int]:
    """Bytes of the operators, by the first word of their texts, behind a full window."""
    flow = Dataflow(Relations(LINK).bound(text), state_bytes_max=1 << 32, expiry=expiry)
    rows = len(columns[0])
    for first in range(0, rows, 1_000):
        here = slice(first, first + 1_000)
        times = pa.array(np.arange(first, first + 1_000)).cast(pa.timestamp("us"))
        batch = pa.record_batch(
            [*(pa.array(each[here]) for each in columns), times], names=["src", "dst", "ts"]
        )
        flow.push("link", batch, first)
        flow.advance({"link": first + 1_000})
    return {each.text.split()[0]: each.size_bytes for each in flow.operators()}


WINDOW = 40_000
DISTINCT = "SELECT DISTINCT {} FROM link [RANGE INTERVAL '0.040000' SECOND]"


@pytest.mark.parametrize(("name", "less"), [("src", 6), ("src, dst", 1.5)])
def test_state_is_of_the_output_and_not_of_the_window(name, less):
    """Shape of Golab 2006, section 3.6, Q29.2: sources are skewed, pairs are many.

    A row of a window or of an output is its values and four numbers. The operator has at most two
    of them for each value of the output, beside the index of the values.
    """
    dice = np.random.default_rng(seed("distinct state", name) % 2**32)
    columns = [
        (dice.zipf(1.3, 2 * WINDOW) % 2_000).astype(np.int64),
        dice.integers(0, 40, 2 * WINDOW),
    ]
    text = DISTINCT.format(name)
    used = columns[: len(name.split(","))]
    values = np.unique(np.stack(used)[:, -WINDOW:], axis=1)
    outputs = values.shape[1]
    row_bytes = 8 * len(used) + 32
    own = filled(text, columns, Expiry.PATTERN)["DISTINCT"]
    negative = filled(text, columns, Expiry.NEGATIVE)
    held = negative["Negative"] + negative["DISTINCT"]
    assert less * own <= held, (own, held)
    if name == "src":
        index = KeyDirectory(pa.schema([(name, pa.int64())]))
        index.assign([pa.array(values[0])])
        assert own - index.size_bytes <= 2 * row_bytes * outputs
        assert 3 * own <= row_bytes * (WINDOW + outputs)


def test_tuples_before_a_slide_are_held_once_for_each_value():
    """With SLIDE all tuples of a slide are born together, so the newest of a value is enough."""
    slides = DISTINCT.replace("]", " SLIDE INTERVAL '0.040000' SECOND]")
    few = [np.arange(39_000) % 500, np.zeros(39_000, np.int64)]
    assert filled(slides.format("src"), few, Expiry.PATTERN)["DISTINCT"] <= 200 * 500
