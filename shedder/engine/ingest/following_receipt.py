"""Receipt that follows a record of the log: it is given when the record is durable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from shedder.queries.answers.database_api import Receipt


def following(durable: Future[int], result: Callable[[], Receipt]) -> Future[Receipt]:
    """Return the future of a receipt that is made when a record is durable."""
    receipt: Future[Receipt] = Future()

    def settle(done: Future[int]) -> None:
        error = done.exception()
        if error is None:
            receipt.set_result(result())
        else:
            receipt.set_exception(error)

    durable.add_done_callback(settle)
    return receipt
