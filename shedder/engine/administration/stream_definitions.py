"""Creation and removal of streams."""

from __future__ import annotations

from shedder.archive.files.data_directory import FORMAT_TENANTS
from shedder.cql.binding.new_names import check_new_stream
from shedder.cql.statements.bound_query import DEFAULT_TENANT, StreamSchema
from shedder.cql.statements.statement import CreateStream
from shedder.engine.administration.controls import Controls
from shedder.engine.administration.show_and_describe import definition, is_same
from shedder.errors import StreamExists, StreamInUse
from shedder.streams.live_sample import StreamSample


class StreamDefinitions(Controls):
    """CREATE STREAM and DROP STREAM."""

    def create_stream(self, statement: CreateStream, tenant: str = DEFAULT_TENANT) -> bool:
        """Create a stream, for a tenant; False when an equal one exists.

        Raises:
          StreamExists: there is one of this name with another definition.
        """
        with self._ddl:
            if statement.name in self.core.streams:
                schema = self.core.streams[statement.name].schema
                if statement.if_not_exists or is_same(schema, statement):
                    return False
                raise StreamExists(
                    f"stream {statement.name!r} exists with another definition: "
                    f"{definition(schema)}"
                )
            check_new_stream(statement)
            schema = StreamSchema(
                name=statement.name,
                columns=statement.columns,
                time_column=statement.time_column,
                lateness_us=statement.lateness_us,
                retain_us=statement.retain_us,
                layout=statement.layout,
                on_overload=statement.on_overload,
                seed=self.core.machine.random_bits(64),
                tenant=tenant,
            )
            if tenant != DEFAULT_TENANT:
                self.core.store.allow(FORMAT_TENANTS)
            stream_id = self.core.store.create_stream(schema).id
            fair_bytes = self.core.samples.fair_bytes(len(self.core.streams) + 1)
            rows = self.core.settings.sample_rows
            sample = StreamSample(schema, rows=rows, size_bytes_max=fair_bytes)
            self.core.actor.call(lambda: self.core.add_stream(stream_id, schema, sample)).result()
            return True

    def drop_stream(self, name: str) -> None:
        """Forget a stream and delete its data.

        Raises:
          UnknownStream; StreamInUse: standing queries need it.
        """
        with self._ddl:
            stream = self.core.stream(name)
            if stream.queries:
                raise StreamInUse(
                    f"stream {name!r} has standing queries: {', '.join(sorted(stream.queries))}; "
                    "drop them first"
                )

            def forget() -> None:
                self.checkpoints.forget_stream(stream.id)
                self.core.store.drop_stream(stream.id)
                del self.core.streams[name]
                self.core.intakes.pop(name).close()
                self.core.queues.drop_stream(stream.schema.tenant)

            self.checkpoints.end_begun()
            self.core.actor.call(forget).result()
