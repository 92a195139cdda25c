"""Creation, change and removal of streams."""

from __future__ import annotations

import threading
from dataclasses import replace

from shedder.archive.files.data_directory import (
    FORMAT_FOREIGN_KEYS,
    FORMAT_TENANTS,
    FORMAT_WAITS,
)
from shedder.cql.binding.new_names import check_new_stream
from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.cql.statements.canonical_text import text_of_stream
from shedder.cql.statements.foreign_key import ForeignKey, referenced_key
from shedder.cql.statements.overload_policy import OnOverload, resolved
from shedder.cql.statements.statement import CreateStream
from shedder.engine.checkpoints.checkpoint_scheduler import Checkpoints
from shedder.engine.engine_state import EngineState
from shedder.engine.runtime.lifetime import Lifetime
from shedder.errors import StreamExists, StreamInUse, TableExists, UnknownStream
from shedder.streams.live_sample import StreamSample


def _is_same(schema: StreamSchema, statement: CreateStream) -> bool:
    """Return whether a stream is what the statement would make."""
    mine = (schema.columns, schema.time_column, schema.lateness_us, schema.retain_us, schema.layout)
    return (*mine, schema.on_overload, schema.foreign_keys) == (
        statement.columns,
        statement.time_column,
        statement.lateness_us,
        statement.retain_us,
        statement.layout,
        statement.on_overload,
        statement.foreign_keys,
    )


def definition(schema: StreamSchema) -> str:
    """The CREATE STREAM statement that makes such a stream."""
    statement = CreateStream(
        name=schema.name,
        columns=schema.columns,
        time_column=schema.time_column,
        lateness_us=schema.lateness_us,
        retain_us=schema.retain_us,
        layout=schema.layout,
        if_not_exists=False,
        on_overload=schema.on_overload,
        foreign_keys=schema.foreign_keys,
    )
    return text_of_stream(statement)


class StreamDefinitions:
    """CREATE STREAM, DROP STREAM and ALTER STREAM SET ON OVERLOAD."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        checkpoints: Checkpoints,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._checkpoints = checkpoints

    def create_stream(self, statement: CreateStream, tenant: str = DEFAULT_TENANT) -> bool:
        """Create a stream, for a tenant; False when an equal one exists.

        Raises:
          StreamExists: there is one of this name with another definition. TableExists: the name
          is a table's. UnknownStream: a FOREIGN KEY references none of the tenant. BadQuery: it
          does not fit the other stream.
        """
        with self._ddl:
            statement = self._referring(statement, tenant)
            if statement.name in self._core.streams:
                schema = self._core.streams[statement.name].schema
                if statement.if_not_exists or _is_same(schema, statement):
                    return False
                raise StreamExists(
                    f"stream {statement.name!r} exists with another definition: "
                    f"{definition(schema)}"
                )
            if statement.name in self._core.tables:
                raise TableExists(f"{statement.name!r} is a table; give the stream another name")
            check_new_stream(statement)
            schema = StreamSchema(
                name=statement.name,
                columns=statement.columns,
                time_column=statement.time_column,
                lateness_us=statement.lateness_us,
                retain_us=statement.retain_us,
                layout=statement.layout,
                on_overload=statement.on_overload,
                foreign_keys=statement.foreign_keys,
                seed=self._core.machine.random_bits(64),
                tenant=tenant,
            )
            if tenant != DEFAULT_TENANT:
                self._core.store.allow(FORMAT_TENANTS)
            if schema.foreign_keys:
                waits = any(key.within for key in schema.foreign_keys)
                self._core.store.allow(FORMAT_WAITS if waits else FORMAT_FOREIGN_KEYS)
            stream_id = self._core.store.create_stream(schema).id
            fair_bytes = self._core.samples.fair_bytes(len(self._core.streams) + 1)
            rows = self._core.settings.sample_rows
            sample = StreamSample(schema, rows=rows, size_bytes_max=fair_bytes)
            self._core.executor.call(  # No record that waits is of this stream.
                lambda: self._core.add_stream(stream_id, schema, sample), urgent=True
            ).result()
            return True

    def _referring(self, statement: CreateStream, tenant: str) -> CreateStream:
        """Return a statement with the columns of other streams as these write them."""
        own = {column.name: column.type for column in statement.columns}
        keys: list[ForeignKey] = []
        for key in statement.foreign_keys:
            other = self._core.streams.get(key.relation)
            if other is None or other.schema.tenant != tenant:
                mine = [it.schema for it in self._core.streams.values()]
                raise UnknownStream(key.relation, [it.name for it in mine if it.tenant == tenant])
            others = {column.name: column.type for column in other.schema.columns}
            keys.append(referenced_key(key, own, others))
        return replace(statement, foreign_keys=tuple(keys))

    def drop_stream(self, name: str) -> None:
        """Forget a stream and delete its data.

        Raises:
          UnknownStream; StreamInUse: standing queries need it, or a FOREIGN KEY references it.
        """
        with self._ddl:
            stream = self._core.stream(name)
            self._core.check_unused(stream)
            self.check_unreferenced(name)

            def forget() -> None:
                self._checkpoints.forget_stream(stream.id)
                self._core.store.drop_stream(stream.id)
                self._core.forget_stream(stream)

            self._checkpoints.end_begun()
            self._core.executor.call(forget).result()

    def check_unreferenced(self, name: str) -> None:
        """Raise StreamInUse where a FOREIGN KEY of another stream references a stream or view."""
        others = (it.schema for it in self._core.streams.values() if it.schema.name != name)
        for each in others:
            if any(key.relation == name for key in each.foreign_keys):
                raise StreamInUse(
                    f"stream {name!r} is referenced by the FOREIGN KEY of {each.name!r}; drop "
                    "that stream first"
                )

    def set_on_overload(self, name: str, clause: OnOverload) -> OnOverload:
        """Have a stream that comes too fast thinned, held back or dropped from, from now on.

        Args:
          name: of the stream.
          clause: what is to be done.

        Returns:
          The same, with the column as the stream writes it.

        Raises:
          UnknownStream. BadQuery: no such column. DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        with self._ddl:
            stream = self._core.stream(name)
            policy = resolved(
                clause, {column.name: column.type for column in stream.schema.columns}
            )
            self._core.store.set_on_overload(stream.id, policy)

            def change() -> None:
                stream.change_schema(replace(stream.schema, on_overload=policy))
                self._core.hold_policy(stream)

            self._core.executor.call(change).result()
            return policy
