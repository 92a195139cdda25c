"""Any byte of any file of a directory may be damaged: no answer is wrong and says nothing."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.engine.recovery.damaged_directory import Damage, assert_honest, draw, fill
from tests.scale import scaled
from tests.seeds import seed

TRIALS = scaled(36, 2_000)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("killed") / "data"
    fill(target.with_name("served"), target)
    return target


@pytest.mark.slow
def test_no_answer_of_a_damaged_directory_is_wrong_and_says_nothing(tmp_path, template):
    outcomes = Counter[str]()
    for damage in draw(template, np.random.default_rng(seed("damaged bytes")), TRIALS):
        data = shutil.copytree(template, tmp_path / "data")
        damage.apply(data)
        outcomes[assert_honest(data, damage)] += 1
        shutil.rmtree(data)
    assert outcomes["right"] > TRIALS / 10
    assert outcomes["flagged"] + outcomes["refused"] > TRIALS / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    ["FORMAT", "LOCK", "DURABLE", "catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"],
)
def test_a_missing_file_is_refused_or_made_anew(tmp_path, template, file):
    data = shutil.copytree(template, tmp_path / "data")
    damage = Damage(file, "missing", 0)
    damage.apply(data)
    vital = file in ("FORMAT", "catalog.sqlite", "catalog.sqlite-wal")
    assert assert_honest(data, damage) == ("refused" if vital else "right")
