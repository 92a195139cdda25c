"""The service Synopses: its words are settled, its work comes later."""

from __future__ import annotations

from typing import Any

import grpc

from shedder.errors import Unimplemented
from shedder.v1 import synopses_pb2
from shedder.v1.synopses_pb2_grpc import SynopsesServicer


class Synopses(SynopsesServicer):
    """Refuses, by name, what this version does not do."""

    async def Merge(
        self, request: synopses_pb2.MergeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> synopses_pb2.MergeResponse:
        """Summaries built elsewhere come with the pipeline issue."""
        raise Unimplemented("summaries built elsewhere are not taken yet; push the tuples")
