"""Evaluation that several readers ask for and that is made once, with the failure of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shedder.errors import RowQueryFailed


class EvaluatedOnce:
    """Progress of what is evaluated up to rising instants.

    An evaluation that fails, or that is left between its parts, leaves the state in doubt. Every
    later one raises.

    as_of_us: instant of the last evaluation; None: there was none.
    """

    def __init__(self, as_of_us: int | None = None) -> None:
        self.as_of_us = as_of_us
        self._error: Exception | None = None
        self._goes_on = False

    def has_reached(self, as_of_us: int) -> bool:
        """Return whether there is nothing to evaluate up to an instant.

        Raises:
          RowQueryFailed: an evaluation was left between its parts.
          Exception: that of the evaluation which failed.
        """
        if self._error is not None:
            raise self._error
        if self._goes_on:
            raise RowQueryFailed("another query is in a step of an operator that both share")
        return self.as_of_us is not None and as_of_us <= self.as_of_us

    @contextmanager
    def evaluation(self, as_of_us: int) -> Iterator[None]:
        """Evaluate up to an instant in the body."""
        self._goes_on = True
        try:
            yield
        except GeneratorExit:
            self._error = RowQueryFailed("a query that shares operators was dropped in a step")
            raise
        except Exception as error:
            self._error = error
            raise
        finally:
            self._goes_on = False
        self.as_of_us = as_of_us
