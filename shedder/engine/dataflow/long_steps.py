"""Long steps of row queries: the apply thread begins them, and another thread ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
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


class TakenStep(Generic[Made]):
    """The step of one query that the other thread goes on with. Used by the apply thread."""

    def __init__(self, thread: StepThread) -> None:
        """There is none yet."""
        self._thread = thread
        self._step: QueryStep[Made] | None = None
        self._done: Future[None] | None = None

    @property
    def step(self) -> QueryStep[Made] | None:
        """The step; None: there is none."""
        return self._step

    def take(self, step: QueryStep[Made], ended: Callable[[], None]) -> None:
        """Give a step to the other thread, as `StepThread.take`."""
        self._step = step
        self._done = self._thread.take(step, ended)

    def finish(self) -> QueryStep[Made] | None:
        """Wait for the end of the step, and return it; None: there is none."""
        if self._step is None or self._done is None:
            return None
        if self._done.cancel():
            self._step.finish()
        else:
            wait([self._done])
        return self._step

    def leave(self, step: QueryStep[Made]) -> bool:
        """Forget a step that has ended, or raise its error; return False if it is not the step."""
        if self._step is not step or self._done is None:
            return False
        done, self._step, self._done = self._done, None, None
        if not done.cancelled():
            done.result()
        return True

    def cancel(self) -> None:
        """Forget the step, and have it end with its present part."""
        if self._step is not None:
            self._step.cancel()
            self._step = self._done = None


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
