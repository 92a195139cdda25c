"""Sampled copies of a run: nested simple random samples, chosen by the hash of the position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.encoding.parquet_encoding import row_group_rows
from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.layouts.run_footer import file_metadata, run_file
from shedder.archive.metadata.catalog_entries import Copy, StreamEntry
from shedder.cql.sql.exact_query import POSITION
from synopses.kernels.hashing import chosen_keys, position_start, uniforms

_SALT = 0x636F7079  # "copy": not the keys that the live sample and thinning choose by.


def places_of(seed: int, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each tuple's place: independent, uniform in (0, 1), a function of seed and position.

    The tuples at places >= r are a Bernoulli sample of share 1 - r, so given how many they are, a
    simple random sample without replacement. Shape [n].
    """
    return uniforms(chosen_keys(position_start(seed ^ _SALT, 0), positions))


def left(table: pa.Table, seed: int, reduction: float) -> pa.Table:
    """Those rows of a table with positions whose place is at least a reduction, in order."""
    places = places_of(seed, table[POSITION].to_numpy())
    return table.take(np.flatnonzero(places >= reduction))


def write_copy(
    place: RunPlace,
    stream: StreamEntry,
    stretch: tuple[int, int],
    rows: pa.Table,
    reduction: float,
) -> Copy:
    """Write a copy durably; the catalog has to be told afterwards.

    Args:
      place: where.
      stream: whose run it is of.
      stretch: the run's first and end position.
      rows: that were left at this reduction, with positions.
      reduction: in [0, 1).

    Raises:
      DiskFull, StorageFailed: nothing is in `runs/`.
    """
    size = row_group_rows(rows)
    groups = (rows.slice(at, size) for at in range(0, rows.num_rows, size))
    metadata = {
        **file_metadata(stream, stretch, blocks=1),
        "shedder.reduction": repr(reduction),
    }
    written = place.write(run_file(stream.id, *stretch, reduction), rows, metadata, groups)
    return Copy(
        reduction, written.name, rows.num_rows, written.size_bytes, written.crc, written.footer
    )
