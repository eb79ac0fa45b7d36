"""Clients of etcd for a comparison: ours over bare HTTP/2, and one with the gRPC library.

Both speak to the leader, which costs etcd the least: other members pass requests on to it. When the
connection ends, or when the oldest call has had no answer for a second, the bare one turns to the
next member; whoever runs the load tries again, and etcd's puts may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from swell.errors import ConfigurationError
from swell.lab.etcd_messages import (
    PUT,
    RANGE,
    count_request,
    put_request,
    range_request,
    value_of,
)
from swell.lab.grpc_channel import CallError, Channel, header_block
from swell.world import Address

CHANNELS = 4
"""More or fewer connections gave etcd no higher rates."""
ANSWER_S_MAX = 1.0
DIAL_PAUSE_S = 0.02

_PUT_BLOCK = header_block("etcd", PUT)
_RANGE_BLOCK = header_block("etcd", RANGE)


class EtcdClient:
    """Many clients' worth of calls on a few connections to one member at a time."""

    def __init__(self, addresses: Sequence[Address], cluster: str = "") -> None:
        self._addresses = list(addresses)
        self._channels: list[Channel] = []
        self._next = 0
        self._dialling = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._dial()
        self._watch = asyncio.create_task(self._watch_answers())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for channel in self._channels:
            channel.close()

    async def put(self, key: str, value: bytes) -> None:
        await (await self._channel()).call(_PUT_BLOCK, put_request(key.encode(), value))

    async def get(self, key: str) -> bytes | None:
        return value_of(
            await (await self._channel()).call(_RANGE_BLOCK, range_request(key.encode()))
        )

    async def burden(self) -> None:
        """Costs the member about a millisecond and us next to nothing."""
        await (await self._channel()).call(_RANGE_BLOCK, count_request())

    async def _channel(self) -> Channel:
        self._next += 1
        channel = self._channels[self._next % CHANNELS]
        if channel.ended:
            await self._dial()
            channel = self._channels[self._next % CHANNELS]
        return channel

    async def _dial(self) -> None:
        """Connect to the first member that lets us; of many callers one does it."""
        async with self._dialling:
            if self._channels and not any(channel.ended for channel in self._channels):
                return
            for channel in self._channels:
                channel.close()
            address = self._addresses[0]
            try:
                self._channels = [
                    await Channel.connect(address.host, address.port) for _ in range(CHANNELS)
                ]
            except CallError:
                self._turn()
                await asyncio.sleep(DIAL_PAUSE_S)
                raise

    def _turn(self) -> None:
        self._addresses = [*self._addresses[1:], self._addresses[0]]

    async def _watch_answers(self) -> None:
        """Leave a member that has gone silent: one that forwarded calls to a dead leader answers
        only after many seconds."""
        while True:
            before = [(channel, channel.oldest) for channel in self._channels]
            await asyncio.sleep(ANSWER_S_MAX)
            if any(oldest and channel.oldest == oldest for channel, oldest in before):
                self._turn()
                for channel in self._channels:
                    channel.close()


class EtcdLibraryClient:
    """The same calls through the gRPC library for Python, its asyncio form."""

    def __init__(self, addresses: Sequence[Address], cluster: str = "") -> None:
        try:
            from grpc import aio
        except ImportError:
            raise ConfigurationError(
                "the gRPC library is not installed: pip install grpcio"
            ) from None
        self._error = aio.AioRpcError
        self._channel = aio.insecure_channel(str(addresses[0]))
        self._put = self._channel.unary_unary(PUT)
        self._range = self._channel.unary_unary(RANGE)

    async def open(self) -> None:
        await self._channel.channel_ready()

    async def close(self) -> None:
        await self._channel.close()

    async def put(self, key: str, value: bytes) -> None:
        await self._call(self._put, put_request(key.encode(), value))

    async def get(self, key: str) -> bytes | None:
        return value_of(await self._call(self._range, range_request(key.encode())))

    async def burden(self) -> None:
        await self._call(self._range, count_request())

    async def _call(self, method: Callable[[bytes], Awaitable[bytes]], message: bytes) -> bytes:
        try:
            return await method(message)
        except self._error as error:
            raise CallError(f"the call failed: {error.details()}") from None
