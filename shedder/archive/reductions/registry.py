"""Reductions by name: those built in, and those that installed packages bring."""

from __future__ import annotations

import inspect
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from shedder.archive.reductions.by_age import ByAge
from shedder.archive.reductions.by_load import ByLoad
from shedder.archive.reductions.by_value import ByValue
from shedder.archive.reductions.reduction import BlockStatistics, Maker, Reduction, Surroundings
from shedder.archive.reductions.uniform import Uniform
from shedder.archive.reductions.until_error import UntilError
from shedder.archive.tasks.interruptible_call import aside
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.statements import statement
from shedder.errors import BadQuery, BadReduction, UnknownReduction

GROUP: Final = "shedder.reductions"
UNTIL_ERROR: Final = statement.ReductionClause("until_error", ())
BUILT_IN: Final[Mapping[str, Maker]] = {
    "uniform": Uniform.make,
    "by_age": ByAge.make,
    "by_load": ByLoad.make,
    "by_value": ByValue.make,
    "until_error": UntilError.make,
}


@dataclass(frozen=True, slots=True)
class NamedReduction:
    """A reduction under the text by which it was requested; its results are checked.

    is_ours: it is built in. Other reductions run in threads of their own, so that a query can be
      cancelled while its reduction hangs. Whatever they raise counts as an error of the reduction.
    """

    text: str
    reduction: Reduction
    is_ours: bool = False

    @property
    def reads_on(self) -> bool:
        """Return whether it is asked again after each look.

        Raises:
          BadReduction: it does not say.
        """
        try:
            return bool(self.reduction.reads_on)
        except self._own_errors as error:
            raise _failed(self.text, "failed", error) from error

    def wanted(self, block: BlockStatistics) -> float:
        """The reduction's word, in [0, 1).

        Raises:
          BadReduction: it raised something, or said something else.
        """
        try:
            said = self.reduction.wanted(block)
            if _is_reduction(said):
                return float(said)
            shown = reprlib.repr(said)
        except self._own_errors as error:
            raise _failed(self.text, "failed", error) from error
        raise BadReduction(
            f"the reduction {self.text} wants {shown}; it must be a number in [0, 1)"
        )

    def wanted_of(
        self, blocks: Sequence[BlockStatistics], on_progress: ProgressCallback = no_progress
    ) -> list[float]:
        """Return its word on each.

        on_progress: called meanwhile; what it raises ends the waiting.

        Raises:
          BadReduction: as `wanted`.
        """

        def ask() -> list[float]:
            return [self.wanted(block) for block in blocks]

        return ask() if self.is_ours else aside(ask, on_progress)

    @property
    def _own_errors(self) -> type[BaseException]:
        """Exceptions that count as the reduction's own.

        Ctrl-C never reaches the thread of an installed reduction, only the caller's thread.
        """
        return Exception if self.is_ours else BaseException


def reduction_of(
    clause: statement.ReductionClause,
    surroundings: Surroundings,
    known: Mapping[str, Maker] | None = None,
    on_progress: ProgressCallback = no_progress,
) -> NamedReduction:
    """The reduction that a query asks for.

    Args:
      clause: REDUCE BY name(arguments).
      surroundings: what it may see.
      known: makers by name beside those that packages bring; None: those built in.
      on_progress: called while a package makes its reduction; what it raises ends the waiting.

    Raises:
      UnknownReduction: no such name. BadQuery: wrong arguments. BadReduction: it cannot be made.
    """
    text = f"{clause.name}({', '.join(_shown(each) for each in clause.arguments)})"
    maker = (BUILT_IN if known is None else known).get(clause.name.lower())
    if maker is not None:
        made = _made(maker, clause, surroundings, text, Exception)
        return NamedReduction(text, made, is_ours=True)
    point = _brought(clause.name, BUILT_IN if known is None else known)

    def make() -> NamedReduction:
        try:
            brought: Maker = point.load()
        except BaseException as error:
            raise _failed(text, "cannot be loaded", error) from error
        return NamedReduction(text, _made(brought, clause, surroundings, text, BaseException))

    return aside(make, on_progress)


def _made(
    maker: Maker,
    clause: statement.ReductionClause,
    surroundings: Surroundings,
    text: str,
    own_errors: type[BaseException],
) -> Reduction:
    """What a maker makes of the arguments; theirs: what it may raise that is its own fault."""
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError) as error:
        raise _failed(text, "cannot be made", error) from error
    try:
        signature.bind(surroundings, *clause.arguments)
    except TypeError as error:
        raise BadQuery(
            f"REDUCE BY {text}: {error}; it is {clause.name}({_parameters(signature)})"
        ) from error
    try:
        return maker(surroundings, *clause.arguments)
    except ValueError as error:
        raise BadQuery(f"REDUCE BY {text}: {error}") from error
    except own_errors as error:
        raise _failed(text, "cannot be made", error) from error


def _failed(text: str, how: str, error: BaseException) -> BadReduction:
    return BadReduction(f"the reduction {text} {how}: {type(error).__name__}: {error}")


def _is_reduction(said: object) -> bool:
    if isinstance(said, bool) or not hasattr(said, "__float__"):
        return False
    number = float(said)
    return math.isfinite(number) and 0.0 <= number < 1.0


def _brought(name: str, known: Mapping[str, Maker]) -> EntryPoint:
    """What a package brings under a name; it is loaded when it is asked for.

    Raises:
      UnknownReduction: none does.
    """
    brought = {point.name.lower(): point for point in entry_points(group=GROUP)}
    if name.lower() not in brought:
        raise UnknownReduction(name, sorted({*known, *brought}))
    return brought[name.lower()]


def _parameters(signature: inspect.Signature) -> str:
    """The arguments that REDUCE BY gives: all but the surroundings."""
    return ", ".join(str(each) for each in list(signature.parameters.values())[1:])


def _shown(argument: float | str) -> str:
    return repr(argument) if isinstance(argument, str) else f"{argument:.15g}"
