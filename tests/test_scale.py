"""The sizes of per-change and nightly runs."""

from __future__ import annotations

import pytest

from tests.repository import ROOT, tracked
from tests.scale import SCALE, VARIABLE, Scale, scale, scaled


def test_a_run_is_of_a_change_unless_the_environment_says_nightly():
    assert scale({}) is Scale.CHANGE
    assert scale({VARIABLE: "nightly"}) is Scale.NIGHTLY


def test_a_misspelt_scale_is_refused():
    with pytest.raises(ValueError, match="nigthly"):
        scale({VARIABLE: "nigthly"})


def test_each_scale_has_its_size():
    assert scaled(4, 40, Scale.CHANGE) == 4
    assert scaled(4, 40, Scale.NIGHTLY) == 40
    assert scaled(4, 40) == scaled(4, 40, SCALE)


def test_each_file_with_sizes_of_two_scales_has_a_row_in_contributing():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = [path for path in tracked("tests/*.py") if path.name.startswith("test_")]
    scaled = {path for path in paths if "from tests.scale import" in path.read_text()}
    names = {str(path.relative_to(ROOT)) for path in scaled}
    names -= {f"tests/test_{name}.py" for name in ("run", "scale")}
    assert len(names) > 50
    assert not sorted(name for name in names if f"`{name}`" not in text)
