"""Errors that Shedder's code raised on an executor, unwrapped from Spark's exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from shedder.errors import ShedderError

_RAISED = re.compile(r"^shedder\.errors\.(\w+): (.*)$", re.MULTILINE)


def raised(error: BaseException) -> ShedderError | None:
    """Our own error, if Spark tells of one: the last in the traceback that its text has."""
    known = {each.__name__: each for each in ShedderError.by_reason.values()}
    found = [(known[name], text) for name, text in _RAISED.findall(str(error)) if name in known]
    if not found:
        return None
    (kind, text) = found[-1]
    return kind.from_message(text)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Of the errors of a Spark job, those of our code are raised as what they are.

    Raises:
      ShedderError: what it was, and Spark's own words as its cause. Others as they came.
    """
    try:
        yield
    except PySparkException as error:
        own = raised(error)
        if own is None:
            raise
        raise own from error
