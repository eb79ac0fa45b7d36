"""Our own client library under load: the DHT of `swell.connect`."""

from __future__ import annotations

from collections.abc import Sequence

import swell
from swell.client.session import Requester
from swell.runtime.world import RuntimeWorld
from swell.world import Address

BURDEN_DEADLINE_S = 5.0


class SwellClient:
    """One connected client for all coroutines of the load process."""

    def __init__(self, addresses: Sequence[Address], cluster: str) -> None:
        self._client = swell.connect(",".join(map(str, addresses)), cluster=cluster)
        world = RuntimeWorld("burden", None, None, cluster=cluster)
        self._world = world
        self._requester = Requester(world, world.cluster, addresses[:1])

    async def open(self) -> None:
        await self._client.__aenter__()
        self._dht = self._client.dht()
        self._world.start(self._requester)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)
        await self._world.stop()

    async def put(self, key: bytes, value: bytes) -> None:
        await self._dht.put(key, value)

    async def get(self, key: bytes) -> bytes | None:
        value: bytes | None = await self._dht.get(key)
        return value

    async def burden(self) -> None:
        """The node gathers and encodes its whole status; here the answer is only counted."""
        done = self._world.loop.create_future()
        self._requester.request("status", {}, BURDEN_DEADLINE_S, lambda _: done.set_result(None))
        await done
