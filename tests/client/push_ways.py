"""A service that is killed and forgets producers, and the four ways in which pushes come to it."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shedder.cli.files.event_order import SortLimits
from shedder.cli.files.formats import FileFormat
from shedder.cli.files.row_file import RowFile
from shedder.cli.loading.load_sources import LoadOptions
from shedder.client.connection import Connection
from shedder.engine.engine import Engine
from shedder.engine.ingest.producer_memory import ProducerLimits
from shedder.errors import SchemaMismatch, Unavailable
from shedder.queries.answers.database_api import Database
from shedder.settings import Settings
from tests.cli.loading.interrupted import Fault, load
from tests.server.worlds import CREATE_TRADES, Full, interrupt, spilling
from tests.server_process import running
from tests.streams.streams import trades

FEW = ProducerLimits(bytes_max=4_000, evicted_max=1 << 10)
FLOOD = 12  # Producers; more than FEW has room for.
SETTINGS = Settings(listen="127.0.0.1:0", insecure=True, drain_s=0.1, overload="off", audit="off")


class Service:
    """An engine and its server, which can be killed; the next life has what was on disk.

    address: of every life. front: the engine as the server sees it.
    """

    def __init__(self, directory: Path, rng: np.random.Generator) -> None:
        self.address = SETTINGS.listen
        self._directory = directory
        self._rng = rng
        self._life = 0
        self._rows_max = 5
        self._floods = 0
        self._start()
        self.engine.execute(CREATE_TRADES)

    def kill(self) -> None:
        """Go on with what is on disk at this moment, and with as high or a higher limit of a batch.

        A lower limit refuses batches for good that a client has cut before.
        """
        self._server.close()
        before = self._directory / str(self._life)
        self._life += 1
        shutil.copytree(before, self._directory / str(self._life))
        self.engine.close()
        self._start()

    def evict(self) -> None:
        """Let so many producers push that the older ones are evicted."""
        for each in range(FLOOD):
            name = f"other {self._floods} {each}"
            self.engine.push("trades", trades(0), producer=name, sequence=0)
        self._floods += 1

    def close(self) -> None:
        """End it."""
        self._server.close()
        self.engine.close()

    def _start(self) -> None:
        self._rows_max += int(self._rng.integers(6))
        settings = SETTINGS.model_copy(
            update={"listen": self.address, "batch_rows_max": self._rows_max}
        )
        directory = self._directory / str(self._life)
        self.engine = Engine.open(directory, settings, producer_limits=FEW)
        self.front = Full(self.engine)
        self._server = ExitStack()
        self.address = str(self._server.enter_context(running(self.front, settings)))


def dying(batch: pa.RecordBatch, rng: np.random.Generator) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the first rows of a push in batches, then raise in the reader: the process dies."""
    rows = int(rng.integers(1, 12))
    for at in range(0, int(rng.integers(0, batch.num_rows + 1)), rows):
        yield batch.slice(at, rows)
    yield pa.table({"no": ["such column"]})


@dataclass
class Way(ABC):
    """A way in. The pushes of one producer come in order, and each may come again.

    sent: the pushes that were acknowledged.
    """

    service: Service
    rng: np.random.Generator
    sent: list[pa.RecordBatch] = field(default_factory=list)

    def begin(self, batch: pa.RecordBatch) -> None:
        """Die in the next push."""
        with pytest.raises(SchemaMismatch):
            self._push(dying(batch, self.rng), len(self.sent))

    def push(self, batch: pa.RecordBatch) -> None:
        """Make the next push, of which some batches may be stored, until it is acknowledged."""
        self._push(batch, len(self.sent))
        self.sent.append(batch)

    def repeat(self, number: int) -> None:
        """Make a push again that was acknowledged."""
        self._push(self.sent[number], number)

    def end(self) -> None:
        """Wait until all is stored."""
        return

    @abstractmethod
    def _push(self, data: object, number: int) -> None: ...


@dataclass
class ByDatabase(Way):
    """`push` of the embedded database, or of a client."""

    name: str = ""
    database: Callable[[], Database] | None = None

    def _push(self, data: object, number: int) -> None:
        self.service.front.full.clear()
        assert self.database is not None
        is_again = number < len(self.sent)
        receipt = self.database().push("trades", data, producer=self.name, sequence=number)
        assert receipt.rows == data.num_rows
        assert receipt.duplicate or not is_again


@dataclass
class ByFile(Way):
    """Files that `shedder push` loads; a load that dies loses its connection."""

    directory: Path = Path()
    database: Database | None = None
    loads: int = 0

    def begin(self, batch: pa.RecordBatch) -> None:
        with suppress(Unavailable):  # The fault may come behind the last push of the load.
            fault = Fault(int(self.rng.integers(0, 8)), is_stored=bool(self.rng.random() < 0.5))
            self._load(batch, len(self.sent), fault)

    def _push(self, data: object, number: int) -> None:
        self._load(data, number, Fault())

    def _load(self, data: pa.RecordBatch, number: int, fault: Fault) -> None:
        self.service.front.full.clear()
        path = self.directory / f"{number}.parquet"
        pq.write_table(pa.Table.from_batches([data]), path)
        options = LoadOptions("file", True, False, limits=SortLimits(batch_rows=9))
        self.loads += 1
        place = self.directory / f"load {self.loads}"
        place.mkdir()
        load(self.database, "trades", [RowFile(path, FileFormat.PARQUET)], options, place, fault)


@dataclass
class BySpill(Way):
    """A producer that keeps batches on its disk while the server has no room."""

    directory: Path = Path()
    connection: Connection | None = None

    def __post_init__(self) -> None:
        self.producer = spilling(self.connection, self.directory)

    def _push(self, data: object, number: int) -> None:
        full = self.service.front.full
        (full.set if self.rng.random() < 0.5 else full.clear)()
        if self.rng.random() < 0.3:
            interrupt(self.producer)
            self.producer = spilling(self.connection, self.directory)
        assert self.producer.next_sequence == len(self.sent)
        assert self.producer.push(data, sequence=number) == max(number + 1, len(self.sent))

    def end(self) -> None:
        self.service.front.full.clear()
        self.producer.close()
