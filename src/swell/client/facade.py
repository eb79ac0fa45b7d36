"""Requests from ordinary programs: connect, ask, disconnect, on a loop of their own.

request([Address("127.0.0.1", 7000)], "my-cluster", "members", {})
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import uvloop

from swell.client.session import Requester
from swell.client.token import find_token
from swell.errors import SwellError
from swell.runtime.security import TlsMaterial
from swell.runtime.world import Deadlines, RuntimeWorld
from swell.world import Address

CLIENT_NAME = "client"
DEADLINE_S = 10.0
DRAIN_S = 0.5


async def request_async(
    addresses: Sequence[Address],
    cluster: str,
    operation: str,
    arguments: dict[str, Any] | None = None,
    *,
    tls: TlsMaterial | None = None,
    deadline_s: float = DEADLINE_S,
    token: str | None = None,
) -> dict[str, Any]:
    """Ask the first of the nodes that answers; raises `SwellError` if none does. Without a token:
    that of the environment, if any."""
    name, deadlines = tls.node if tls else CLIENT_NAME, Deadlines(drain_s=DRAIN_S)
    world = RuntimeWorld(name, None, tls, cluster=cluster, deadlines=deadlines)
    requester = Requester(world, world.cluster, addresses, find_token(token))
    outcome: asyncio.Future[dict[str, Any]] = world.loop.create_future()

    def done(result: dict[str, Any] | SwellError) -> None:
        if outcome.done():
            return
        if isinstance(result, SwellError):
            outcome.set_exception(result)
        else:
            outcome.set_result(result)

    world.start(requester)
    requester.request(operation, arguments or {}, deadline_s, done)
    try:
        return await outcome
    finally:
        await world.stop()


def request(
    addresses: Sequence[Address],
    cluster: str,
    operation: str,
    arguments: dict[str, Any] | None = None,
    *,
    tls: TlsMaterial | None = None,
    deadline_s: float = DEADLINE_S,
    token: str | None = None,
) -> dict[str, Any]:
    """`request_async` for programs without a loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            request_async(
                addresses,
                cluster,
                operation,
                arguments,
                tls=tls,
                deadline_s=deadline_s,
                token=token,
            )
        )
