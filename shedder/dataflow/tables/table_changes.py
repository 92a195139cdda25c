"""Changes of a table as a relation whose rows leave at any instant.

The places of the table's versions are instants: a version is in the relation as of e if it is valid
at e. So a join corrects its earlier pairs when the table changes (R tables: Golab 2006, sec. 3.3).
"""

from __future__ import annotations

import numpy as np

from shedder.dataflow.changes import NEVER_US, ChangeBatch
from shedder.dataflow.tables.table_versions import NEVER, TableVersions


class TableChanges:
    """Versions that begin or end, each given once, by instant."""

    def __init__(self, versions: TableVersions) -> None:
        """No changes yet. versions: of the table; changed by the caller."""
        self.versions = versions
        self._as_of_us: int | None = None
        self._waits = np.empty(0, np.int64)  # Versions that begin or end after `_as_of_us`.
        self._generation = versions.generation

    @property
    def size_bytes(self) -> int:
        """Bytes of the versions."""
        return self.versions.size_bytes

    def release(self, as_of_us: int) -> ChangeBatch:
        """Return the rows that come and go after the last call, up to an instant."""
        versions, before_us = self.versions, self._as_of_us
        self._as_of_us = as_of_us
        changed = versions.changed()
        if self._generation == versions.generation and len(self._waits):
            changed = np.union1d(changed, self._waits)
        self._generation = versions.generation
        if not len(changed):
            return ChangeBatch.empty(versions.schema)
        begins, ends = versions.spans[changed].T
        self._waits = changed[(begins > as_of_us) | ((ends > as_of_us) & (ends != NEVER))]
        comes, goes = begins <= as_of_us, ends <= as_of_us
        if before_us is not None:
            comes, goes = comes & (begins > before_us), goes & (ends > before_us)
        lasts = begins < ends
        come, go = np.flatnonzero(comes & lasts), np.flatnonzero(goes & lasts)
        born_us = np.concatenate([ends[go], begins[come]])
        order = np.argsort(born_us, kind="stable")
        born_us = born_us[order]
        weight = np.repeat(np.array([-1, 1]), [len(go), len(come)])[order]
        columns = versions.take(changed[np.concatenate([go, come])[order]])
        return ChangeBatch(columns, born_us - 1, born_us, np.full(len(born_us), NEVER_US), weight)
