"""A file that is pushed again is stored once, whatever the limits of a batch are meanwhile."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.cli.commands import run
from shedder.cli.exit_codes import ExitCode
from tests.cli.worlds import stored_rows

ROWS = 700


@pytest.mark.slow
def test_a_file_is_stored_once_under_any_limits_of_a_batch(tmp_path, monkeypatch):
    directory, path = tmp_path / "data", tmp_path / "a.parquet"
    times = pa.array(range(ROWS), pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "v": range(ROWS)}), path)
    command = ["push", "s", str(path), "-d", str(directory), "--create", "--producer", "load"]
    for rows_max in (100, 64, 1_000):
        monkeypatch.setenv("SHEDDER_BATCH_ROWS_MAX", str(rows_max))
        assert run(command) == ExitCode.FINE
        assert stored_rows(directory, "s")["v"].to_pylist() == [*range(ROWS)]
