"""What waits at a producer is read whole, whatever the sender is told meanwhile."""

import threading

import pytest

from shedder.client.backlog import Backlog
from shedder.client.disk_buffer import Spill
from tests.streams.streams import TRADES, trades


class ReceiptBeforeRead(Spill):
    """A spill whose sender gets a receipt for everything before a read, if it may."""

    def __init__(self, directory):
        super().__init__(directory, TRADES, "p")
        self.backlog = Backlog(self, 0, hold_s=0.0)

    def read(self, spilled):
        sender = threading.Thread(target=self.get_receipt, args=(spilled.sequence + 1,))
        sender.start()
        sender.join()
        return super().read(spilled)

    def get_receipt(self, sequence):
        if self.backlog.changed.acquire(blocking=False):
            self.backlog.got_receipt((sequence, 0))
            self.backlog.changed.release()


@pytest.fixture
def spill(tmp_path):
    spill = ReceiptBeforeRead(tmp_path)
    yield spill
    spill.close()


def test_a_receipt_removes_no_batch_of_a_push_that_is_being_read(spill):
    spill.write(trades(5), epoch=0, sequence=3)
    (found,) = spill.backlog.of_push(3)
    assert found.batch.equals(trades(5))
    spill.get_receipt(4)
    assert spill.backlog.of_push(3) == []
