"""Levels and sizes of a row query in the catalog: durable before rows depend on them."""

from __future__ import annotations

import json

import structlog

from shedder.archive.files.data_directory import FORMAT_FOREIGN_KEYS
from shedder.engine.dataflow.join_sizes import SAMPLING, JoinSampling
from shedder.engine.dataflow.thinning_levels import THINNING, KeyThinning
from shedder.engine.engine_state import EngineState

_log = structlog.get_logger("shedder.engine")


class StoredLevels:
    """Where the levels of one query are stored. Used by the apply thread.

    A level, or a size, has an instant, and the rows before it are made again without it. So it is
    stored in the catalog at once, and not in the log, where records that are not applied yet come
    before it.
    """

    def __init__(self, core: EngineState, name: str, *, begins: bool) -> None:
        """begins: the query is being registered; else a checkpoint has it."""
        self._core = core
        self._name = name
        self._begins = begins

    @property
    def is_new(self) -> bool:
        """Return whether the query is being registered, so that its entry is still to be made."""
        return self._begins and self._name not in self._core.rows

    def put(self, thinning: KeyThinning) -> bool:
        """Store levels.

        Returns:
          False, and nothing is stored, while recovery makes rows again that were made before, and
          while the entry of a new query is on its way to the catalog.

        Raises:
          DiskFull, StorageFailed: nothing was stored.
        """
        if self.is_new:
            return True
        is_stored = self._put(THINNING, thinning.to_json())
        if is_stored:
            _log.info("row_query_thinned", query=self._name, keys=2.0**-thinning.level)
        return is_stored

    def needs_from_us(self) -> int | None:
        """Return the event time before which no restart reads tuples; None: it is not known."""
        return self._core.rows.restarts_from_us(self._name)

    def put_sizes(self, sampling: JoinSampling) -> bool:
        """Store the sizes of a sampled join, as `put`."""
        if self._core.is_recovered:
            self._core.store.allow(FORMAT_FOREIGN_KEYS)
        is_stored = self._put(SAMPLING, sampling.to_json())
        if is_stored:
            _log.info("sampled_join_resized", query=self._name, bytes=sampling.resizes[-1][1])
        return is_stored

    def _put(self, key: str, value: object) -> bool:
        if not self._core.is_recovered:
            return False
        return self._core.store.catalog.set_parameters(
            self._name, lambda stored: json.dumps({**json.loads(stored), key: value})
        )
