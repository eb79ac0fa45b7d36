"""A publisher without a store, a container without a network, a store that commits when told to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from swell.config import operations as ops
from swell.config import requests
from swell.config import splices as deltas
from swell.config.bursts import Change, StepChanges
from swell.config.edits import Edit, Rollback, Uploaded
from swell.config.heads import Line
from swell.config.machine import ConfigMachine
from swell.config.operations import CONFIG_SERVICE, KEEP_VERSIONS, Published
from swell.config.resolving import Task, resolve
from swell.config.versions import NO_VERSION, Kind, version_id
from swell.overlay.contact import Contact
from swell.store import payload
from swell.store.messages import Execute, Read, Status
from swell.store.request import Request
from swell.store.state import Machine, SlotState

APPLICATION = "shop"
VALUE_BYTES_MAX = 128 * 1024 * 1024
SESSION = 1 << 40


def resolved(
    machine: ConfigMachine, edits: Sequence[Edit], author: str = "ann", keep: int = KEEP_VERSIONS
) -> bytes:
    """The step that a primary makes of these edits, as bytes of the log."""
    line = Line(APPLICATION)
    tasks = []
    by_name: dict[str, list[Edit]] = {}
    for edit in edits:
        by_name.setdefault(edit.name, []).append(edit)
    for several in by_name.values():
        edit, source = several[0], None
        if isinstance(edit, Rollback):
            source = machine.content_at(APPLICATION, edit.name, edit.version)
        if isinstance(edit, Uploaded):
            source = machine.uploads.finished(APPLICATION, edit.upload, edit.length, edit.digest)
        present = line.present(machine, edit.name)
        tasks.append(Task(APPLICATION, several, present, VALUE_BYTES_MAX, source))
    steps = tuple(ready.edit for ready in resolve(tasks))
    return ops.encode(ops.Step(APPLICATION, steps, author, 7, keep))


def publish(machine: ConfigMachine, *edits: Edit, keep: int = KEEP_VERSIONS) -> Published:
    return requests.published_of(machine.apply(resolved(machine, edits, keep=keep)))


def value(machine: ConfigMachine, name: str, version: int = 0) -> bytes | None:
    got = requests.got_of(machine.query(requests.get(APPLICATION, name, version).body))
    return got.data if got is not None else None


class ToyContainer:
    """Keeps what it was sent, and is strict about it."""

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.values: dict[str, bytes | None] = {}
        self.versions: dict[str, tuple[int, bytes]] = {}

    def take(self, machine: ConfigMachine, upto: int, steps: Iterable[StepChanges]) -> None:
        last = self.step
        for step in steps:
            assert last < step.number <= upto
            assert step.changes
            last = step.number
            for change in step.changes:
                self._apply(machine, change)
        self.step = upto

    def _apply(self, machine: ConfigMachine, change: Change) -> None:
        name = change.name
        version, id_ = self.versions.get(name, (0, NO_VERSION))
        assert change.version > version
        if change.kind == Kind.DELTA:
            assert change.base == id_
            assert version_id(id_, Kind.DELTA, change.data) == change.id
            base = self.values[name]
            assert base is not None
            self.values[name] = deltas.apply_to(base, deltas.decode(change.data))
        elif change.kind == Kind.WHOLE:
            self.values[name] = change.data
        elif change.kind == Kind.DELETE:
            self.values[name] = None
        else:
            content = machine.content_at(APPLICATION, name, change.version)
            assert content is not None
            assert content.digest == change.data
            self.values[name] = content.bytes()
        assert len(self.values[name] or b"") == change.length
        self.versions[name] = (change.version, change.id)

    def living(self) -> dict[str, bytes]:
        return {name: value for name, value in sorted(self.values.items()) if value is not None}


class ToyStore:
    """One slot that is served here. Commands are ordered at once and applied by `commit`."""

    def __init__(self) -> None:
        self.state = SlotState({CONFIG_SERVICE: ConfigMachine})
        self.serving = True
        self.room = 1024
        self.log: deque[tuple[Execute, Callable[[Status, bytes], None]]] = deque()
        self.bodies: list[bytes] = []
        """Of all commands that were ordered."""

    @property
    def slots(self) -> int:
        return 1

    @property
    def machine(self) -> ConfigMachine:
        machine = self.state.machine(CONFIG_SERVICE)
        assert isinstance(machine, ConfigMachine)
        return machine

    def execute(self, execute: Execute, done: Callable[[Status, bytes], None]) -> None:
        if not self.serving:
            done(Status.REDIRECT, b"")
        elif execute.read == Read.LINEARIZABLE:
            done(*self.state.query(execute.service, execute.body))
        elif len(self.log) >= self.room:
            done(Status.BUSY, b"")
        else:
            self.log.append((execute, done))
            self.bodies.append(execute.body)

    def commit(self, count: int = 1 << 30) -> None:
        while self.log and count:
            count -= 1
            execute, done = self.log.popleft()
            done(*self.apply(execute))

    def apply(self, e: Execute) -> tuple[Status, bytes]:
        return self.state.apply(
            payload.encode_command(e.session, e.number, e.lowest, e.service, e.body)
        )

    def lose(self) -> None:
        """Another node becomes the primary; nothing of the log is known to have survived."""
        self.serving = False
        while self.log:
            self.log.popleft()[1](Status.RETRY, b"")

    def served(self, slot: int, service: int) -> Machine | None:
        return self.state.machine(service) if self.serving else None

    def is_known(self, slot: int, session: int, number: int) -> bool:
        open_ = any((e.session, e.number) == (session, number) for e, _ in self.log)
        return open_ or self.state.is_known(session, number)

    def primary(self, slot: int) -> Contact | None:
        return None

    def primaries(self) -> Sequence[int]:
        return [1]

    def contacts(self) -> Sequence[Contact]:
        return []


class ToyWorld:
    """As much of a world as publishing needs; what is offloaded runs when told to."""

    recording = False

    def __init__(self) -> None:
        self.offloaded: deque[tuple[Any, Any, Any]] = deque()
        self.later: list[Callable[[], None]] = []

    def wall_us(self) -> int:
        return 1_234

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.later.append(action)

    def offload(self, function: Any, argument: Any, done: Any) -> None:
        self.offloaded.append((function, argument, done))

    def work(self, count: int = 1 << 30) -> None:
        while self.offloaded and count:
            count -= 1
            function, argument, done = self.offloaded.popleft()
            try:
                result = function(argument)
            except Exception as error:
                result = error
            done(result)


class Answers:
    """Sends requests and keeps what comes back, by number."""

    def __init__(self, execute: Callable[[Execute, Callable[[Status, bytes], None]], None]) -> None:
        self._execute = execute
        self._number = 0
        self.given: dict[int, tuple[Status, bytes]] = {}

    def send(self, request: Request, number: int = 0, **fields: Any) -> int:
        if not number:
            self._number += 1
            number = self._number
        slot, service = fields.get("slot", 0), fields.get("service", CONFIG_SERVICE)
        execute = Execute(SESSION, number, 1, slot, service, request.read, request.body, 10.0)

        def done(status: Status, body: bytes) -> None:
            self.given[number] = (status, body)

        self._execute(execute, done)
        return number

    def published(self, number: int) -> Published:
        status, body = self.given[number]
        assert status is Status.DONE, body
        return requests.published_of(body)

    def refusal(self, number: int) -> str:
        status, body = self.given[number]
        assert status is Status.REFUSED
        return body.decode()
