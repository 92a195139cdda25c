"""Settings: their order, their errors, and that each has a reader and a line in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shedder.errors import BadSetting
from shedder.settings import Settings, markdown, parse_bytes

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith("SHEDDER_")]:
        monkeypatch.delenv(name)


def test_flags_beat_environment_beats_file_beats_default(tmp_path, monkeypatch):
    config = tmp_path / "shedder.toml"
    config.write_text('sample_rows = 100\nrun_rows = 100\npanes_max = 100\nlisten = "[::1]:1"')
    monkeypatch.setenv("SHEDDER_RUN_ROWS", "200")
    monkeypatch.setenv("SHEDDER_PANES_MAX", "200")
    settings = Settings.load(config, panes_max=300, exact_threads=None)
    assert (settings.sample_rows, settings.run_rows, settings.panes_max) == (100, 200, 300)
    assert settings.exact_threads == Settings().exact_threads


def test_the_environment_may_name_the_file(tmp_path, monkeypatch):
    config = tmp_path / "shedder.toml"
    config.write_text("sample_rows = 128")
    monkeypatch.setenv("SHEDDER_CONFIG", str(config))
    assert Settings.load().sample_rows == 128


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("64KiB", 65536), ("2 GiB", 2 << 30), ("1.5mib", 3 << 19), ("5kB", 5000)],
)
def test_sizes_have_units(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"memory_bytes": "lots"}, "memory_bytes = 'lots': a size is a number"),
        ({"sample_rows": 3}, "sample_rows = 3: .*greater than or equal to 64"),
        ({"sampel_rows": 3}, "no setting 'sampel_rows'; did you mean sample_rows?"),
    ],
)
def test_a_wrong_value_is_refused_with_the_value_and_the_rule(flags, message):
    with pytest.raises(BadSetting, match=message):
        Settings.load(**flags)


def test_a_misspelt_variable_is_refused(monkeypatch):
    monkeypatch.setenv("SHEDDER_MEMORY_BYTE", "1GiB")
    with pytest.raises(BadSetting, match="did you mean SHEDDER_MEMORY_BYTES"):
        Settings.load()


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path):
    with pytest.raises(BadSetting, match="nowhere"):
        Settings.load(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("sample_rows: 3")
    with pytest.raises(BadSetting, match="broken"):
        Settings.load(broken)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "shedder.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match=r"cannot read the settings file .*shedder\.toml"):
        Settings.load(path)


def test_the_page_of_settings_is_fresh():
    assert (ROOT / "docs/settings.md").read_text() == markdown(), "run: make docs"


def test_every_setting_has_a_reader():
    code = "".join(
        path.read_text() for path in (ROOT / "shedder").rglob("*.py") if path.name != "settings.py"
    )
    unread = [name for name in Settings.model_fields if not re.search(rf"\.{name}\b", code)]
    assert not unread, f"settings that nothing reads: {unread}"
