"""Long steps of row queries: the apply thread begins them, and another thread ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Generic, TypeVar

from shedder.dataflow.step_parts import Parts
from shedder.engine.dataflow.row_output import Frontier
from shedder.errors import Draining, InternalError
from shedder.queries.answers.answer import InputProgress

Made = TypeVar("Made")


class QueryStep(Generic[Made]):
    """A step of a row query, in parts.

    before, after: the query's frontier before the step, and behind it but for the rows.
    progress: of the inputs, behind the step.
    made: what the step has made; None: it has more parts.
    """

    def __init__(
        self,
        parts: Parts[Made],
        before: Frontier,
        after: Frontier,
        progress: tuple[InputProgress, ...],
    ) -> None:
        self._parts = parts
        self._is_cancelled = False
        self.before = before
        self.after = after
        self.progress = progress
        self.made: Made | None = None

    def go_on(self) -> bool:
        """Run one part; return whether there are more. A cancelled step has none."""
        if self._is_cancelled:
            self._parts.close()
            return False
        try:
            next(self._parts)
        except StopIteration as end:
            self.made = end.value
            return False
        return True

    def finish(self) -> None:
        """Run all parts."""
        while self.go_on():
            pass

    def cancel(self) -> None:
        """Make the next part the last; from any thread."""
        self._is_cancelled = True


class StepThread:
    """The thread that goes on with long steps, one after the other."""

    def __init__(self, pool: Executor, post: Callable[[Callable[[], None]], None]) -> None:
        """pool: has the thread. post: has something done on the apply thread, soon."""
        self._pool = pool
        self._post = post

    def take(self, step: QueryStep[Made], ended: Callable[[], None]) -> Future[None]:
        """Go on with a step. ended: called on the apply thread when the future is done."""
        done = self._pool.submit(step.finish)

        def post_ended(_: Future[None]) -> None:
            with suppress(Draining, InternalError):  # The engine has closed, or halted.
                self._post(ended)

        done.add_done_callback(post_ended)
        return done

    def close(self) -> None:
        """Wait for the part that runs; the steps are cancelled."""
        self._pool.shutdown(cancel_futures=True)


class ReadWaits:
    """Futures of callers that wait until the tuples that were read are in the rows.

    A caller that comes during a step waits for the step behind it.
    """

    def __init__(self) -> None:
        self._now: list[Future[None]] = []
        self._next: list[Future[None]] = []

    def add(self) -> Future[None]:
        """Return the future of one more caller."""
        self._next.append(Future())
        return self._next[-1]

    def begin_step(self) -> None:
        """Begin a step, which has all tuples that were read and are in no earlier step."""
        self._now, self._next = [*self._now, *self._next], []

    def end_step(self) -> None:
        """Release the callers that wait for the step."""
        waits, self._now = self._now, []
        _release(waits)

    def end(self) -> None:
        """Release all callers: the query makes no more rows."""
        self.begin_step()
        self.end_step()


def _release(waits: Sequence[Future[None]]) -> None:
    for each in waits:
        if each.set_running_or_notify_cancel():  # Some gave up.
            each.set_result(None)
