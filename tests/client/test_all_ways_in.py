"""Four ways in, one service: each row is stored once, whatever dies, is repeated or evicted."""

from contextlib import closing

import numpy as np
import pytest

from tests.client.push_ways import ByDatabase, ByFile, BySpill, Service
from tests.scale import scaled
from tests.seeds import seed
from tests.server.worlds import connect, connection_to, stored
from tests.streams.streams import trades


@pytest.mark.slow
@pytest.mark.parametrize("world", range(scaled(1, 12)))
def test_splits_retries_kills_and_evictions_lose_and_double_nothing_by_any_way(world, tmp_path):
    rng = np.random.default_rng(seed("all ways in", world))
    for name in ("files", "spill"):
        (tmp_path / name).mkdir()
    with (
        closing(Service(tmp_path / "data", rng)) as service,
        connect(service.address) as client,
        closing(connection_to(service.address)) as connection,
    ):
        ways = [
            ByDatabase(service, rng, name="embedded", database=lambda: service.engine),
            ByDatabase(service, rng, name="wire", database=lambda: client),
            ByFile(service, rng, directory=tmp_path / "files", database=client),
            BySpill(service, rng, directory=tmp_path / "spill", connection=connection),
        ]
        try:
            work(service, ways, rng)
        finally:
            for way in ways:
                way.end()
        sent = [batch for way in ways for batch in way.sent]
        assert stored(client) == {value: 1 for batch in sent for value in values(batch)}
        assert client.ledger("trades").applied == sum(batch.num_rows for batch in sent)
        for name, way in zip(("embedded", "wire", None, "p"), ways, strict=True):
            if name is not None and way.sent:
                assert client.last_sequence("trades", name) == (0, len(way.sent) - 1)


def work(service, ways, rng):
    """Push by all ways in any order; producers and the service die at any time."""
    pushes = 0
    for _ in range(scaled(25, 150)):
        way = ways[rng.integers(len(ways))]
        match rng.choice(["push", "repeat", "kill", "evict"], p=[0.55, 0.2, 0.1, 0.15]):
            case "push":
                batch = trades(int(rng.integers(1, 45)), pushes)
                if rng.random() < 0.6:
                    way.begin(batch)
                    (lambda: None, service.kill, service.evict)[rng.integers(3)]()
                way.push(batch)
                pushes += 1
            case "repeat" if way.sent:
                way.repeat(int(rng.integers(max(0, len(way.sent) - 8), len(way.sent))))
            case "kill":
                service.kill()
            case "evict":
                service.evict()


def values(batch):
    return batch["value"].to_pylist()
