"""Any byte of any file of a directory may be damaged: what is read is right, flagged or refused."""

import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from tests.archive.recovery.every_byte import (
    assert_honest,
    drawn,
    every_damage,
    files_for,
    fill,
    said_of,
)
from tests.scale import scaled
from tests.seeds import seed

PARTS = 16  # Of the sweep; each takes some minutes.


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("killed") / "data"
    fill(target.with_name("served"), target)
    return target


def outcomes_of(damages, template, tmp_path) -> Counter[str]:
    truth, found = said_of(shutil.copytree(template, tmp_path / "whole")), Counter[str]()
    for damage in damages:
        data = shutil.copytree(template, tmp_path / "data", ignore=files_for(damage))
        damage.apply(data)
        found[assert_honest(data, damage, truth)] += 1
        shutil.rmtree(data)
    return found


@pytest.mark.slow
def test_a_drawn_damage_is_right_flagged_or_refused(tmp_path, template):
    damages = drawn(template, seed("every byte"), scaled(60, 600))
    found = outcomes_of(damages, template, tmp_path)
    assert min(found["right"], found["flagged"], found["refused"]) > 3


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_every_damage_is_right_flagged_or_refused(tmp_path, template, part):
    damages = islice(every_damage(template, seed("every byte")), part, None, PARTS)
    assert sum(outcomes_of(damages, template, tmp_path).values()) > 1_000
