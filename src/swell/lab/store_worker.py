"""The process that hosts all clients of a system under load, and what they saw.

Every client is a coroutine with one operation under way: it draws a key, waits for the answer, and
goes on. An open loop begins operations by a schedule instead and counts their time from the moment
they were due, so that a store that stalls is charged for what would have come meanwhile. A failed
operation is counted and tried again with the same key; its time runs on. Processor time of clients
and servers is read at the same two instants, the begin and the end of what is measured.

The process is the same for all systems, apart from the client that it makes.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import uvloop

from swell.errors import SwellError
from swell.lab.server_process import cpu_s
from swell.world import Address

KEYS = 10_000
VALUE_BYTES = 200
SLOW_S = 0.25
"""Puts that took longer are told one by one."""
RETRY_PAUSE_S = 0.01
UNDER_WAY_MAX = 4096
"""Operations of an open loop under way, at most; what is due beyond that is dropped, counted."""
BURDEN_MAX = 48
"""The same for requests that only burden, not counted. A node refuses what one client asks beyond
64, which would be no burden."""


class StoreClient(Protocol):
    """What a system's client does here."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def put(self, key: str, value: bytes) -> None: ...

    async def get(self, key: str) -> bytes | None: ...

    async def burden(self) -> None:
        """A request that costs the busiest server much more than this process."""


class ClientSpec(NamedTuple):
    """How the load process makes its client."""

    make: Callable[[Sequence[Address], str], StoreClient]
    addresses: tuple[Address, ...]
    cluster: str = ""
    uvloop: bool = True


class Trial(NamedTuple):
    """One measurement."""

    operation: str
    clients: int
    """Of a closed loop; ignored in an open one."""
    warm_up_s: float
    seconds: float
    servers: tuple[int, ...]
    """Their process ids."""
    rate_per_s: float = math.inf
    """Of an open loop; infinite: a closed one."""
    burden_per_s: float = 0.0


class Slow(NamedTuple):
    """An operation that took long, by the system's monotonic clock; infinite: it has not ended."""

    begun_s: float
    ended_s: float


class Outcome(NamedTuple):
    """What a trial measured."""

    rate_per_s: float
    p50_ms: float
    p99_ms: float
    gap_s: float
    """Longest time without any operation ending."""
    failures: int
    wrong: int
    """Gets that returned something else than what was put."""
    dropped: int
    """Of an open loop: not begun because too many were under way."""
    client_cpu: float
    """Cores."""
    server_cpu: tuple[float, ...]
    slow: tuple[Slow, ...]


class Fill(NamedTuple):
    """Put every key once; so many keys with values of that length."""

    keys: int
    value_bytes: int
    clients: int
    first: int = 0


class Filled(NamedTuple):
    seconds: float
    client_cpu: float


def key_of(number: int) -> str:
    return f"key-{number:07d}"


def value_of(number: int, value_bytes: int) -> bytes:
    """Begins with the number of its key, so that a get can be checked."""
    return (b"%07d:" % number) + random.Random(number).randbytes(value_bytes - 8)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Workers:
    """Clients in action, and what they note."""

    def __init__(self, client: StoreClient, trial: Trial) -> None:
        self._client = client
        self._trial = trial
        self._random = random.Random(trial.clients)
        self._operate = self._put if trial.operation == "put" else self._get
        self._keys = [key_of(number) for number in range(KEYS)]
        self._values = [value_of(number, VALUE_BYTES) for number in range(KEYS)]
        self._running = True
        self._begun_s: dict[int, float] = {}
        self._reset()

    def _reset(self) -> None:
        self._times_s: list[float] = []
        self._slow: list[Slow] = []
        self._last_s = time.monotonic()
        self._gap_s = 0.0
        self._failures = self._wrong = self._dropped = 0

    async def run(self) -> Outcome:
        closed = math.isinf(self._trial.rate_per_s)
        parts: list[Coroutine[Any, Any, None]] = (
            [self._closed_loop(place) for place in range(self._trial.clients)]
            if closed
            else [self._open_loop(self._trial.rate_per_s, self._timed, UNDER_WAY_MAX)]
        )
        if self._trial.burden_per_s:
            parts.append(self._open_loop(self._trial.burden_per_s, self._burden, BURDEN_MAX))
        tasks = [asyncio.create_task(part) for part in parts]
        await asyncio.sleep(self._trial.warm_up_s)
        self._reset()
        begun_s, cpu = time.monotonic(), self._cpu()
        await asyncio.sleep(self._trial.seconds)
        outcome = self._outcome(time.monotonic() - begun_s, cpu, self._cpu())
        self._running = False
        await asyncio.gather(*tasks)
        return outcome

    def _cpu(self) -> list[float]:
        return [time.process_time(), *map(cpu_s, self._trial.servers)]

    def _outcome(self, seconds: float, before: list[float], after: list[float]) -> Outcome:
        times_s, now_s = sorted(self._times_s), time.monotonic()
        open_yet = [
            Slow(at_s, math.inf) for at_s in self._begun_s.values() if now_s - at_s > SLOW_S
        ]
        client, *servers = [
            round((end - begin) / seconds, 3) for begin, end in zip(before, after, strict=True)
        ]
        return Outcome(
            len(times_s) / seconds,
            percentile(times_s, 0.5) * 1e3,
            percentile(times_s, 0.99) * 1e3,
            max(self._gap_s, now_s - self._last_s),
            self._failures,
            self._wrong,
            self._dropped,
            client,
            tuple(servers),
            (*self._slow, *open_yet),
        )

    async def _closed_loop(self, place: int) -> None:
        while self._running:
            self._begun_s[place] = time.monotonic()
            await self._timed(self._begun_s[place])

    async def _open_loop(
        self,
        rate_per_s: float,
        begin: Callable[[float], Coroutine[Any, Any, None]],
        under_way_max: int,
    ) -> None:
        """`begin` by a schedule; counts what is not begun of operations."""
        under_way: set[asyncio.Task[None]] = set()
        due_s = time.monotonic()
        while self._running:
            now_s = time.monotonic()
            while due_s <= now_s:
                if len(under_way) < under_way_max:
                    task = asyncio.create_task(begin(due_s))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                elif begin == self._timed:
                    self._dropped += 1
                due_s += self._random.expovariate(rate_per_s)
            await asyncio.sleep(due_s - now_s)
        await asyncio.gather(*under_way)

    async def _timed(self, begun_s: float) -> None:
        """One operation, tried until it succeeds."""
        number = self._random.randrange(KEYS)
        while self._running:
            try:
                await self._operate(number)
            except SwellError:
                self._failures += 1
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            now_s = time.monotonic()
            took_s = now_s - begun_s
            self._times_s.append(took_s)
            self._gap_s = max(self._gap_s, now_s - self._last_s)
            self._last_s = now_s
            if took_s > SLOW_S:
                self._slow.append(Slow(begun_s, now_s))
            return

    async def _burden(self, due_s: float) -> None:
        try:
            await self._client.burden()
        except SwellError:
            self._failures += 1

    async def _put(self, number: int) -> None:
        await self._client.put(self._keys[number], self._values[number])

    async def _get(self, number: int) -> None:
        if await self._client.get(self._keys[number]) != self._values[number]:
            self._wrong += 1


async def _fill(client: StoreClient, request: Fill) -> Filled:
    numbers = iter(range(request.first, request.first + request.keys))

    async def worker() -> None:
        for number in numbers:
            value = value_of(number, request.value_bytes)
            while True:
                try:
                    await client.put(key_of(number), value)
                    break
                except SwellError:
                    await asyncio.sleep(RETRY_PAUSE_S)

    begun_s, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(request.clients)))
    seconds = time.monotonic() - begun_s
    return Filled(seconds, (time.process_time() - cpu) / seconds)


async def _serve(pipe: Connection, spec: ClientSpec) -> None:
    loop = asyncio.get_running_loop()
    try:
        client = spec.make(spec.addresses, spec.cluster)
        await client.open()
        while True:
            request = await loop.run_in_executor(None, pipe.recv)
            if isinstance(request, Fill):
                pipe.send(await _fill(client, request))
            else:
                gc.collect()
                pipe.send(await Workers(client, request).run())
    except SwellError as error:
        pipe.send(str(error))
    except EOFError:
        pass


def main(pipe: Connection, spec: ClientSpec) -> None:
    factory = uvloop.new_event_loop if spec.uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(pipe, spec))
