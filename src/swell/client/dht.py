"""The DHT for programs: SpiderCast's nine operations (2.3), asynchronous.

Keys are text, values bytes (`swell.dht.keys` has the rules). Every operation is atomic, executed
at most once, and ends by its deadline: with its result, with `OutcomeUnknownError` if it may have
been executed, or with `UnavailableError` if it was not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from swell.client.session_pending import Answer
from swell.dht import operations
from swell.dht.operations import DHT_SERVICE, truth_of, value_of
from swell.store.request import Request

Call = Callable[[int, int, int, bytes, float | None], Awaitable[Answer]]


class Reading(NamedTuple):
    """What a key holds; `stale`: as a member says that may be behind."""

    value: bytes | None
    stale: bool


class Dht:
    """The operations on one cluster's table."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def put(self, key: str, value: bytes, *, deadline_s: float | None = None) -> None:
        """Insert or replace."""
        place, read, body = operations.put(key, value)
        truth_of((await self._call(DHT_SERVICE, place, read, body, deadline_s)).body)

    async def put_and_retrieve(
        self, key: str, value: bytes, *, deadline_s: float | None = None
    ) -> bytes | None:
        """Insert or replace; what the key held before."""
        return value_of(await self._run(operations.put_and_retrieve(key, value), deadline_s))

    async def get(
        self, key: str, *, stale: bool = False, deadline_s: float | None = None
    ) -> bytes | None:
        """What the key holds, None if nothing. `stale` allows an answer that may be behind, from
        any member, also while the slot has no primary."""
        place, read, body = operations.get(key, stale)
        return value_of((await self._call(DHT_SERVICE, place, read, body, deadline_s)).body)

    async def read(
        self, key: str, *, stale: bool = False, deadline_s: float | None = None
    ) -> Reading:
        """As `get`, and whether the answer may be behind."""
        place, read, body = operations.get(key, stale)
        answer = await self._call(DHT_SERVICE, place, read, body, deadline_s)
        return Reading(value_of(answer.body), answer.stale)

    async def contains(self, key: str, *, deadline_s: float | None = None) -> bool:
        return truth_of(await self._run(operations.contains(key), deadline_s))

    async def remove(
        self, key: str, value: bytes | None = None, *, deadline_s: float | None = None
    ) -> bool:
        """Remove, with `value` only if the key holds it; whether something was removed."""
        return truth_of(await self._run(operations.remove(key, value), deadline_s))

    async def put_if_absent(
        self, key: str, value: bytes, *, deadline_s: float | None = None
    ) -> bool:
        """Insert unless the key holds something; whether it was inserted."""
        return truth_of(await self._run(operations.put_if_absent(key, value), deadline_s))

    async def replace(
        self, key: str, value: bytes, *, deadline_s: float | None = None
    ) -> bytes | None:
        """Replace if the key holds something; what it held, None if nothing."""
        return value_of(await self._run(operations.replace(key, value), deadline_s))

    async def replace_if(
        self, key: str, old: bytes, new: bytes, *, deadline_s: float | None = None
    ) -> bool:
        """Replace if the key holds `old`; whether it did."""
        return truth_of(await self._run(operations.replace_if(key, old, new), deadline_s))

    async def _run(self, request: Request, deadline_s: float | None) -> bytes:
        place, read, body = request
        return (await self._call(DHT_SERVICE, place, read, body, deadline_s)).body
