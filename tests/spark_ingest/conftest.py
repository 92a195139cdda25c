"""A certificate authority for tests of the Spark commands."""

from pathlib import Path

import pytest

from tests.server.conftest import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    directory = tmp_path / "identity"
    directory.mkdir()
    return Authority(directory)
