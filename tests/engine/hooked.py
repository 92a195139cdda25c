"""A machine that calls a hook right before the indexer is given work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from tests.engine.supervised import INDEXES, Supervised


class Hooked(ThreadPoolExecutor):
    """Something happens right before a piece of work is taken."""

    happen: Callable[[], None] = staticmethod(lambda: None)

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Call the hook, then submit the work."""
        self.happen()
        return super().submit(work, *args, **more)


class WithHook(Supervised):
    """A machine whose indexer has such a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.hooked = Hooked(1)

    def new_pool(self, name: str) -> Executor:
        """Return the hooked pool for the indexer."""
        return self.hooked if name == INDEXES else super().new_pool(name)
