"""Our own client library under load: the DHT of `swell.connect`."""

from __future__ import annotations

from collections.abc import Sequence

import swell
from swell.lab.store_table import TableReader
from swell.world import Address


class SwellClient:
    """One connection for all coroutines of the load process; burdens go to the first address."""

    def __init__(self, addresses: Sequence[Address], cluster: str) -> None:
        self._connection = swell.connect([str(address) for address in addresses], cluster=cluster)
        self._dht = self._connection.dht()
        self._table = TableReader(addresses[0], cluster)

    async def open(self) -> None:
        await self._connection.__aenter__()
        await self._table.open()

    async def close(self) -> None:
        await self._connection.__aexit__(None, None, None)
        await self._table.close()

    async def put(self, key: str, value: bytes) -> None:
        await self._dht.put(key, value)

    async def get(self, key: str) -> bytes | None:
        return await self._dht.get(key)

    async def burden(self) -> None:
        """The node looks at all of its slots and counters."""
        await self._table.burden()
