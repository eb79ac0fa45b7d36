"""Load on the DHT of a real cluster, and strikes against its nodes.

Every value is written once, so that the checker can tell writes apart. A client has several
operations under way, each on keys of its own, so that it goes on with the others while a slot is
down, and no more operations compete for a key than there are clients.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import swell
from swell.cli.localcluster import LocalCluster
from swell.client.dht import Dht
from swell.errors import OutcomeUnknownError, SwellError
from swell.simulation.checkers.history import Output, Value, recorder_of_this_machine

DEADLINE_S = 4.0
THINK_S = (0.0, 0.06)
LANES = 6
"""Operations that a client has under way."""
FINAL_S = 30.0
DOWN_S_MAX = 2.5
PAUSE_S = (1.0, 4.0)
GAP_S = (1.0, 3.0)
DOWN_MAX = 2
"""Nodes that are killed or paused at one time: one replica of every slot is always there."""
JOIN_S = 40.0
ASK_S = 2.0
LEADER_EVERY = 3

MIX = (
    "get", "get", "get", "put", "put", "put", "contains", "remove", "put_if_absent",
    "put_and_retrieve", "replace", "replace_if", "replace_if", "remove_if",
)  # fmt: skip

Input = tuple[Value, ...]


class LoadClient:
    """One client: asks, waits, thinks, and writes down what it heard, until `resting`."""

    def __init__(self, number: int, keys: Sequence[str], rng: Random) -> None:
        self.name = f"client{number}"
        self.recorder = recorder_of_this_machine()
        self.acknowledged: Counter[Value] = Counter()
        """By name of the operation."""
        self.late_s = 0.0
        """Longest time that an operation ended behind its deadline."""
        self.errors: Counter[str] = Counter()
        self.resting = False
        self._keys = keys
        self._rng = rng
        self._values = 0
        self._seen: dict[str, bytes] = {}

    async def run(self, addresses: Sequence[str], cluster: str) -> None:
        shuffled = self._rng.sample(addresses, len(addresses))
        async with (
            swell.connect(shuffled, cluster=cluster) as connection,
            asyncio.TaskGroup() as group,
        ):
            for lane in range(LANES):
                group.create_task(self._ask(connection.dht(), self._keys[lane::LANES]))

    async def _ask(self, dht: Dht, keys: Sequence[str]) -> None:
        """One operation after the other until `resting`. In the end every key is written and read
        again: nothing may have remained that stops it."""
        while not self.resting:
            await asyncio.sleep(self._rng.uniform(*THINK_S))
            key = self._rng.choice(keys)
            await self.execute(dht, key, self._input(key), DEADLINE_S)
        for key in keys:
            assert await self.execute(dht, key, ("put", self.new_value()), FINAL_S), key
            assert await self.execute(dht, key, ("get",), FINAL_S), key

    def new_value(self) -> bytes:
        self._values += 1
        return f"{self.name}-{self._values}".encode()

    def _input(self, key: str) -> Input:
        """An operation as the checker's model writes it."""
        name, seen = self._rng.choice(MIX), self._seen.get(key)
        match name:
            case "get" | "contains" | "remove":
                return (name,)
            case "replace_if":
                return ("replace", seen or self.new_value(), self.new_value())
            case "remove_if":
                return ("remove", seen or self.new_value())
            case _:
                return (name, self.new_value())

    async def execute(self, dht: Dht, key: str, input: Input, deadline_s: float) -> bool:
        """One operation, written down: was an answer heard?"""
        number = self.recorder.call(self.name, key, *input)
        due_s = time.monotonic() + deadline_s
        try:
            output = await perform(dht, key, input, deadline_s)
        except OutcomeUnknownError:
            self.recorder.unknown(number)
            self.errors["unknown"] += 1
            return False
        except SwellError as error:
            # Every other error promises that it was not executed and will not be.
            self.recorder.failed(number)
            self.errors[str(error)] += 1
            return False
        finally:
            self.late_s = max(self.late_s, time.monotonic() - due_s)
        self.recorder.returned(number, output)
        self.acknowledged[f"{input[0]}/{len(input)}"] += 1
        self._learn(key, input, output)
        return True

    def _learn(self, key: str, input: Input, output: Output) -> None:
        """Remember what the key holds, for conditions that may hold too."""
        held = output if input == ("get",) else input[-1] if output is not False else None
        if isinstance(held, bytes) and input[0] != "remove":
            self._seen[key] = held
        else:
            self._seen.pop(key, None)


async def perform(dht: Dht, key: str, input: Input, deadline_s: float) -> Output:
    """The operation that the checker's model calls `input`, and its result as the model has it."""
    name, *values = input
    arguments = [value for value in values if isinstance(value, bytes)]
    if name == "put":
        await dht.put(key, *arguments, deadline_s=deadline_s)
        return True
    if name == "replace" and len(arguments) == 2:
        return await dht.replace_if(key, *arguments, deadline_s=deadline_s)
    result: bool | bytes | None = await getattr(dht, str(name))(
        key, *arguments, deadline_s=deadline_s
    )
    return result


class Strikes:
    """kill -9 or SIGSTOP of nodes that are up, never of more than `DOWN_MAX` at one time."""

    def __init__(self, cluster: LocalCluster, rng: Random) -> None:
        self.done: list[str] = []
        """What was done, in order."""
        self.leaders = 0
        self._cluster = cluster
        self._rng = rng
        self._names = [spec.name for spec in cluster.plan.nodes]
        self._down: dict[str, asyncio.Task[None]] = {}
        self._begun_s = time.monotonic()

    async def run(self, rounds: int) -> None:
        for number in range(rounds):
            while len(self._down) >= DOWN_MAX:
                await asyncio.wait(self._down.values(), return_when=asyncio.FIRST_COMPLETED)
                self._collect()
            up = [name for name in self._names if name not in self._down]
            leader = await self._leader(up[0]) if number % LEADER_EVERY == 0 else ""
            victim = leader if leader in up else self._rng.choice(up)
            self.leaders += victim == leader
            kind = self._rng.choice((self._kill, self._pause))
            self._say(f"{kind.__name__[1:]} {victim}{' (leader)' if victim == leader else ''}")
            self._down[victim] = asyncio.create_task(kind(victim))
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            self._collect()
        if self._down:
            await asyncio.wait(self._down.values())
        self._collect()

    async def all_at_once(self) -> None:
        """kill -9 of the whole cluster, and its start."""
        self._say("kill all")
        processes = self._cluster.running()
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        await asyncio.gather(*(self._start(name) for name in self._names))
        self._say("all are back")

    def _say(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self._begun_s:5.1f} s: {what}")

    def _collect(self) -> None:
        for name in [name for name, task in self._down.items() if task.done()]:
            self._down.pop(name).result()

    async def _leader(self, asked: str) -> str:
        """The directory's leader as a node knows it; empty if it has none at the moment."""
        target = self._cluster.target(asked)
        try:
            shown = await asyncio.to_thread(target.ask, "directory", ASK_S)
        except SwellError:
            return ""
        return next((str(one["name"]) for one in shown["members"] if one["leads"]), "")

    async def _pause(self, name: str) -> None:
        pid = self._cluster.process_of(name).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _kill(self, name: str) -> None:
        await asyncio.to_thread(self._cluster.kill, name)
        await asyncio.sleep(self._rng.uniform(0.0, DOWN_S_MAX))
        await self._start(name)
        self._say(f"{name} is back")

    async def _start(self, name: str) -> None:
        """Start a node with its data, and wait until it says that it has joined."""
        self._cluster.start([[name]])
        ready = self._cluster.path / "logs" / f"{name}.out"
        until_s = time.monotonic() + JOIN_S
        while b'"joined"' not in ready.read_bytes():
            assert time.monotonic() < until_s, f"{name} has not joined: {last_words(ready)}"
            await asyncio.sleep(0.05)


def last_words(ready: Path) -> str:
    log = ready.with_suffix(".log").read_text(errors="replace").splitlines()
    return " | ".join(log[-3:])
