"""Reductions by name: those built in, and those that installed packages bring."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

from shedder.archive.reductions.by_age import ByAge
from shedder.archive.reductions.by_load import ByLoad
from shedder.archive.reductions.by_value import ByValue
from shedder.archive.reductions.reduction import BlockStatistics, Maker, Reduction, Surroundings
from shedder.archive.reductions.uniform import Uniform
from shedder.archive.reductions.until_error import UntilError
from shedder.cql import statement
from shedder.errors import BadQuery, BadReduction, ShedderError, UnknownReduction

GROUP: Final = "shedder.reductions"
UNTIL_ERROR: Final = statement.Reduction("until_error", ())
BUILT_IN: Final[Mapping[str, Maker]] = {
    "uniform": Uniform.make,
    "by_age": ByAge.make,
    "by_load": ByLoad.make,
    "by_value": ByValue.make,
    "until_error": UntilError.make,
}


@dataclass(frozen=True, slots=True)
class NamedReduction:
    """A reduction under the text that it was asked for with; what it says is checked."""

    text: str
    reduction: Reduction

    @property
    def reads_on(self) -> bool:
        """Whether it is asked again after each look."""
        return bool(self.reduction.reads_on)

    def wanted(self, block: BlockStatistics) -> float:
        """The reduction's word, in [0, 1).

        Raises:
          BadReduction: it raised something, or said something else.
        """
        try:
            said = self.reduction.wanted(block)
        except ShedderError:
            raise
        except Exception as error:
            raise BadReduction(
                f"the reduction {self.text} failed: {type(error).__name__}: {error}"
            ) from error
        if not _is_reduction(said):
            raise BadReduction(
                f"the reduction {self.text} wants {said!r}; it must be a number in [0, 1)"
            )
        return float(said)


def reduction_of(
    asked: statement.Reduction,
    surroundings: Surroundings,
    known: Mapping[str, Maker] | None = None,
) -> NamedReduction:
    """The reduction that a query asks for.

    Args:
      asked: REDUCE BY name(arguments).
      surroundings: what it may see.
      known: makers by name beside those that packages bring; None: those built in.

    Raises:
      UnknownReduction: no such name. BadQuery: wrong arguments. BadReduction: it cannot be made.
    """
    text = f"{asked.name}({', '.join(_shown(each) for each in asked.arguments)})"
    maker = _maker(asked.name, BUILT_IN if known is None else known, text)
    signature = inspect.signature(maker)
    try:
        signature.bind(surroundings, *asked.arguments)
    except TypeError as error:
        raise BadQuery(
            f"REDUCE BY {text}: {error}; it is {asked.name}({_parameters(signature)})"
        ) from error
    try:
        return NamedReduction(text, maker(surroundings, *asked.arguments))
    except ValueError as error:
        raise BadQuery(f"REDUCE BY {text}: {error}") from error
    except ShedderError:
        raise
    except Exception as error:
        raise BadReduction(
            f"the reduction {text} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _is_reduction(said: object) -> bool:
    if isinstance(said, bool) or not hasattr(said, "__float__"):
        return False
    number = float(said)
    return math.isfinite(number) and 0.0 <= number < 1.0


def _maker(name: str, known: Mapping[str, Maker], text: str) -> Maker:
    """What is built in goes before what packages bring; theirs is loaded when it is asked for."""
    if name.lower() in known:
        return known[name.lower()]
    brought = {point.name.lower(): point for point in entry_points(group=GROUP)}
    if name.lower() not in brought:
        raise UnknownReduction(name, sorted({*known, *brought}))
    try:
        maker: Maker = brought[name.lower()].load()
    except Exception as error:
        raise BadReduction(
            f"the reduction {text} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return maker


def _parameters(signature: inspect.Signature) -> str:
    """The arguments that REDUCE BY gives: all but the surroundings."""
    return ", ".join(str(each) for each in list(signature.parameters.values())[1:])


def _shown(argument: float | str) -> str:
    return repr(argument) if isinstance(argument, str) else f"{argument:g}"
