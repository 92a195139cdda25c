"""What tests of the commands of Spark share: who may call a server."""

from pathlib import Path

import pytest

from tests.server.conftest import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    directory = tmp_path / "identity"
    directory.mkdir()
    return Authority(directory)
