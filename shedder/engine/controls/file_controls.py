"""File controls: backups, layouts, rollups, indexes, purges and scrubs of a running engine."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from shedder.archive.metadata.catalog_entries import RollupEntry
from shedder.archive.operations.backup import Copied, backup
from shedder.archive.operations.scrub import Scrubbed, scrub
from shedder.archive.tasks.progress import Progress
from shedder.cql.binding.new_names import check_new_name, check_outputs
from shedder.cql.statements.archive_layout import Layout
from shedder.cql.statements.statement import Select
from shedder.engine.engine_state import EngineState
from shedder.engine.maintenance.index_builder import IndexBuilder
from shedder.engine.maintenance.run_rewriter import RunRewriter
from shedder.engine.runtime.background_tasks import Watch
from shedder.engine.runtime.lifetime import Lifetime
from shedder.errors import UnknownRollup


class FileControls:
    """Backup, layouts, rollups, indexes, purges and scrubs while the engine runs."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        relayouts: RunRewriter,
        indexer: IndexBuilder,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._relayouts = relayouts
        self._indexer = indexer

    def set_layout(self, name: str, layout: Layout) -> int:
        """Lay out a stream's runs in another way: new ones at once, older ones in the background.

        Reading and writing go on meanwhile. `control()` tells of the progress, and can cancel it;
        setting the former layout undoes what was done.

        Args:
          name: of the stream.
          layout: which.

        Returns:
          How many runs have to be written anew.

        Raises:
          UnknownStream. DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        with self._ddl:
            stream = self._core.stream(name)
            self._core.store.set_layout(stream.id, layout)
            schema = replace(stream.schema, layout=layout)
            self._core.executor.call(lambda: stream.change_schema(schema)).result()
            self._relayouts.stop(name)
            self._relayouts.wake(name)
            return len(self._core.store.layouts.unlike(stream.id))

    def backup(
        self,
        target: str | Path,
        *,
        link: bool = True,
        timeout_s: float | None = None,
        watch: Watch | None = None,
    ) -> Copied:
        """Make a second data directory that holds what is durable now; the engine goes on.

        Args:
          target: made here; it must not exist, or be empty.
          link: give files that never change a second name where that works, not a copy.
          timeout_s: how long it may take.
          watch: is told of its progress, and may cancel it.

        Raises:
          TargetExists, BadSetting, DiskFull, StorageFailed, CorruptData, Cancelled,
          DeadlineExceeded: nothing is left at target.
        """
        self._lifetime.check_open()
        progress = Progress(f"backup to {target}", "bytes")
        with self._core.tasks.running(progress, timeout_s=timeout_s, watch=watch):
            return backup(self._core.store, Path(target), progress=progress, link=link)

    def create_rollup(
        self, name: str, select: Select, *, if_not_exists: bool = False, lazy: bool = False
    ) -> bool:
        """Keep partial aggregates of every run: of new ones at once, of older ones by and by.

        Args:
          name: of the rollup; one name is of one rollup, whatever its stream.
          select: COUNT, SUM, AVG, MIN, MAX, VAR, STDDEV of columns over a tumbling window.
          if_not_exists: one of this name is left as it is.
          lazy: of runs that were read for a question which it would have answered, and no others.

        Returns:
          False when there is one.

        Raises:
          UnknownStream, UnknownColumn, BadQuery; RollupExists; DiskFull, StorageFailed.
        """
        self._lifetime.check_open()
        with self._ddl:
            stream = self._core.stream(select.stream)
            if if_not_exists and name in self._rollups():
                return False
            check_new_name("rollup", name)
            check_outputs(select)
            self._core.store.rollups.add(stream.id, name, select, lazy=lazy)
            self._relayouts.wake(select.stream)
            return True

    def drop_rollup(self, name: str, *, if_exists: bool = False) -> bool:
        """Keep it no more, and delete its files; False when there is none and there need not be.

        Raises:
          UnknownRollup. DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        with self._ddl:
            known = self._rollups()
            if name not in known:
                if if_exists:
                    return False
                raise UnknownRollup(name, sorted(known))
            self._relayouts.stop(known[name][0])
            self._core.store.rollups.drop(known[name][1])
            self._relayouts.wake(known[name][0])
            return True

    def _rollups(self) -> dict[str, tuple[str, RollupEntry]]:
        """All rollups by name, with the names of their streams."""
        return {
            entry.name: (stream, entry)
            for stream, known in list(self._core.streams.items())
            for entry, _ in self._core.store.rollups.entries(known.id)
        }

    def create_index(
        self,
        stream: str,
        column: str,
        *,
        timeout_s: float | None = None,
        watch: Watch | None = None,
    ) -> bool:
        """Index a column's values in every run there is, and from now on in every new one.

        Equalities and ranges of the column in WHERE then read the row groups that hold them: once
        those runs are done. While tuples arrive, it takes a tenth of a core.

        Returns:
          False when it is indexed already.

        Raises:
          UnknownStream, UnknownColumn. BadSetting: a BOOLEAN. DiskFull, StorageFailed, Cancelled,
          DeadlineExceeded; CorruptData: a run is damaged, and in quarantine now, and the statement
          may be repeated. There is no index then.
        """
        self._lifetime.check_open()
        store, number = self._core.store, self._core.stream(stream).id
        progress = Progress(f"index on {stream}({column})", "rows")
        with (
            self._core.tasks.running(progress, timeout_s=timeout_s, watch=watch),
            store.indexes.making(number, column),
        ):
            if column in store.indexes.columns(number):
                return False
            lacking = store.indexes.unindexed(number, progress.advance, columns=(column,))
            progress.expect(sum(run.rows for run, _ in lacking))
            for run, _ in lacking:
                self._indexer.build(run, column, progress)
            is_new = store.indexes.create(number, column, progress.advance)
        self._indexer.catch_up()  # Runs that were written meanwhile are due now.
        return is_new

    def drop_index(self, stream: str, column: str) -> bool:
        """Index a column no more; False when it was not indexed.

        Raises:
          UnknownStream.
        """
        self._lifetime.check_open()
        return self._core.store.indexes.drop(self._core.stream(stream).id, column)

    def purge(
        self, stream: str, *, timeout_s: float | None = None, watch: Watch | None = None
    ) -> int:
        """Take the rows that are deleted now out of a stream's files; the engine goes on.

        It happens by itself, too: at once to runs that are deleted to the share `purge_share`, to
        others when nothing was deleted for `purge_after_s`.

        Returns:
          how many rows.

        Raises:
          UnknownStream, DiskFull, StorageFailed, Cancelled, DeadlineExceeded: runs that were
          purged by then are. CorruptData: a run is damaged; it is in quarantine then.
        """
        self._lifetime.check_open()
        core = self._core
        runs, rows = core.store.purger.marked(core.stream(stream).id), 0
        progress = Progress(f"purge of {stream}", "rows", total=sum(run.rows for run in runs))
        with self._core.tasks.running(progress, timeout_s=timeout_s, watch=watch):
            for run in runs:
                with core.store.quarantine.watched(run):
                    rows += core.store.purger.purge(run, progress.advance)
                progress.advance(run.rows)
        self._indexer.catch_up()
        self._relayouts.wake(stream)  # Rollups may be due.
        return rows

    def scrub(self, *, timeout_s: float | None = None, watch: Watch | None = None) -> Scrubbed:
        """Read every run against its checksum, beside everything else.

        Runs that are damaged are quarantined: answers from then on say what is missing.

        Args:
          timeout_s: how long it may take.
          watch: is told of its progress, and may cancel it.

        Raises:
          Cancelled, DeadlineExceeded: what was found by then holds.
        """
        self._lifetime.check_open()
        core = self._core
        with self._core.tasks.running(
            Progress("scrub", "bytes"), timeout_s=timeout_s, watch=watch
        ) as progress:
            rate = core.settings.scrub_bytes_per_second
            return scrub(core.store, progress=progress, bytes_per_second=rate)
