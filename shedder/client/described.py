"""What a server has told of a standing query."""

from __future__ import annotations

from collections.abc import Mapping

from shedder.v1 import query_pb2


class Described:
    """Name, text and grant of a standing query, as they were when it was looked up."""

    def __init__(self, described: query_pb2.StandingQuery) -> None:
        self._described = described

    def __repr__(self) -> str:
        return f"<Query {self.name}: {self.text}>"

    @property
    def name(self) -> str:
        """The name it was registered under."""
        return self._described.name

    @property
    def text(self) -> str:
        """Its text, parameters bound."""
        return self._described.text

    @property
    def granted(self) -> Mapping[str, str]:
        """What registration granted, for humans."""
        return dict(self._described.granted)
