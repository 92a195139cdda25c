"""The base class of controls: operations that change or show one aspect of an engine."""

from __future__ import annotations

from shedder.engine.services import Services


class Controls:
    """Operations over the services of an engine, without state of their own.

    Statements make the controls that they need; the engine has all of them in its interface.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self.core = services.core
        self.tasks = services.tasks
        self.relayouts = services.relayouts
        self.sharing = services.sharing
        self.overload = services.overload
        self.admission = services.admission
        self.checkpoints = services.checkpoints
        self.indexer = services.indexer
        self.cutter = services.cutter
        self._ddl = services.ddl

    def _check_open(self) -> None:
        self.services.lifetime.check_open()
