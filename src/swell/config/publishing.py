"""Publishing at the primary: what clients send is resolved before it is ordered (RIP-6, RIP-17).

Stands between the gateway and the store and passes everything on, except commands on configurations
of slots that this node serves. Those are resolved against their heads (`swell.config.heads`), at
once if the values are short and off the loop otherwise, where later commands on the same
configuration wait behind them.

Only what is committed is answered, a refusal too: it is ordered as what it is. If it rests on a
head that does not come about it is not executed, and a command that is repeated hears it again,
even if it would be right by then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from swell.config import operations as ops
from swell.config.edits import Edit, Lines, Rollback, Uploaded, check_edit
from swell.config.heads import Done, Line, Ordered, Ticket, step_of
from swell.config.machine import ConfigMachine
from swell.config.names import check_application, place
from swell.config.operations import CONFIG_SERVICE, STEP_BYTES_MAX
from swell.config.resolving import Ready, Task, check_together, resolve
from swell.errors import SwellError, TooLargeError, UnavailableError
from swell.events.records import Published
from swell.overlay.contact import Contact
from swell.settings import ConfigSettings
from swell.store.messages import Execute, Read, Status
from swell.store.state import Machine
from swell.world import World

_COMMAND = int(Read.COMMAND)
_CHANGING = b"the configuration is changing: send it again"


class Store(Protocol):
    """What it needs of the replicated store."""

    @property
    def slots(self) -> int: ...

    def execute(self, execute: Execute, done: Done) -> None: ...

    def primary(self, slot: int) -> Contact | None: ...

    def primaries(self) -> Sequence[int]: ...

    def contacts(self) -> Sequence[Contact]: ...

    def epoch(self, slot: int) -> int: ...

    def served(self, slot: int, service: int) -> Machine | None: ...

    def is_known(self, slot: int, session: int, number: int) -> bool: ...


class Publishing:
    """The store, as the gateway sees it."""

    def __init__(
        self, world: World, store: Store, settings: ConfigSettings, counters: Counter[str]
    ) -> None:
        self._world = world
        self._store = store
        self.settings = settings
        self._counters = counters
        self._lines: dict[str, Line] = {}
        self._ready: deque[Ticket] = deque()
        self._running = False
        self.asides: dict[int, Callable[[Execute, Done], None]] = {}
        """Services that the primary of an application's slot answers beside the log."""
        self.check_lines: Callable[[Lines], None] | None = None
        """Raises what a client's change of lines is to be refused for."""

    @property
    def slots(self) -> int:
        return self._store.slots

    def primary(self, slot: int) -> Contact | None:
        return self._store.primary(slot)

    def primaries(self) -> Sequence[int]:
        return self._store.primaries()

    def contacts(self) -> Sequence[Contact]:
        return self._store.contacts()

    def execute(self, execute: Execute, done: Done) -> None:
        """As the store's."""
        if execute.service == CONFIG_SERVICE and execute.read == _COMMAND:
            machine = self._machine(execute)
            if machine is not None and not self._is_known(execute):
                self._command(execute, machine, done)
                return
        elif execute.service in self.asides:
            if self._machine(execute) is None:
                done(Status.REDIRECT, b"")
            else:
                self.asides[execute.service](execute, done)
            return
        self._store.execute(execute, done)

    def publish(self, execute: Execute, publish: ops.Publish, done: Done) -> None:
        """A change of this node's own making, which may touch what clients may not. `execute`
        says under which number."""
        if self._machine(execute) is None:
            done(Status.REDIRECT, b"")
        else:
            self._take(Ticket(execute, publish, done))

    def _take(self, ticket: Ticket) -> None:
        world, execute, publish = self._world, ticket.execute, ticket.publish
        if world.recording:
            about = publish.application, ticket.names, publish.author or None
            world.emit(Published(*about, self._store.epoch(execute.slot), len(execute.body)))
        self._run(ticket)

    def _machine(self, execute: Execute) -> ConfigMachine | None:
        """Of a slot that this node serves."""
        machine = self._store.served(execute.slot, CONFIG_SERVICE)
        return machine if isinstance(machine, ConfigMachine) else None

    def _is_known(self, execute: Execute) -> bool:
        return self._store.is_known(execute.slot, execute.session, execute.number)

    def _command(self, execute: Execute, machine: ConfigMachine, done: Done) -> None:
        try:
            request = ops.decode(execute.body)
            self._check(execute, request)
        except SwellError as error:
            done(Status.REFUSED, str(error).encode())
            return
        if isinstance(request, ops.Publish):
            self._take(Ticket(execute, request, done))
        elif isinstance(request, ops.Stage):
            self._stage(execute, request, machine, done)
        else:
            self._store.execute(execute, done)

    def _stage(
        self, execute: Execute, stage: ops.Stage, machine: ConfigMachine, done: Done
    ) -> None:
        """What would have to wait is not ordered at all: it is long."""
        size, wall_us = len(stage.data), self._world.wall_us()
        if size and not machine.uploads.has_room(stage.application, stage.upload, size, wall_us):
            self._counters["config-uploads-full"] += 1
            done(Status.BUSY, b"other uploads are under way")
            return
        body = ops.encode(replace(stage, wall_us=wall_us))
        self._store.execute(replace(execute, body=body), done)

    def _check(self, execute: Execute, request: Any) -> None:
        """What can be told without looking at the present state."""
        if not isinstance(request, ops.Publish | ops.Stage | ops.SetOptions):
            raise ops.BadOperationError("that is no command for clients")
        check_application(request.application)
        if place(request.application) % self._store.slots != execute.slot:
            raise ops.BadOperationError(
                f"application {request.application} is not in slot {execute.slot}: use CRC32"
            )
        if isinstance(request, ops.Publish):
            for edit in request.edits:
                check_edit(edit)
                if isinstance(edit, Lines) and self.check_lines is not None:
                    self.check_lines(edit)
            check_together(request.edits)
        elif isinstance(request, ops.Stage):
            end, bytes_max = request.offset + len(request.data), self.settings.value_bytes_max
            if end > bytes_max:
                raise TooLargeError(f"the value has {end} bytes or more, allowed are {bytes_max}")

    # Resolving.

    def _run(self, ticket: Ticket) -> None:
        """Resolve it, and whatever waited for it; in turn, also if called from within."""
        self._ready.append(ticket)
        if self._running:
            return
        self._running = True
        try:
            while self._ready:
                self._begin(self._ready.popleft())
        finally:
            self._running = False

    def _begin(self, ticket: Ticket) -> None:
        application = ticket.publish.application
        line = self._lines.get(application)
        if line is None:
            line = self._lines[application] = Line(application)
        if ticket.queued or line.is_free(ticket.names):
            self._resolve(line, ticket)
        elif line.has_room(ticket.names):
            line.queue(ticket)
        else:
            self._counters["config-waiting-full"] += 1
            ticket.done(Status.BUSY, b"too many changes of this configuration are waiting")

    def _resolve(self, line: Line, ticket: Ticket) -> None:
        machine = self._machine(ticket.execute)
        if machine is None or self._is_known(ticket.execute):
            self._hand_on(line, ticket)
            return
        if line.settling:
            self._busy(line, ticket)
            return
        ticket.bases = line.ids(machine, ticket.names)
        try:
            tasks = self._tasks(line, ticket, machine)
            short = sum([task.share for task in tasks]) <= 1.0
            steps = resolve(tasks) if short else None
        except SwellError as error:
            self._refuse(line, ticket, str(error))
            return
        except Exception as error:
            self._fail(line, ticket, error)
            return
        if steps is not None:
            self._order(line, ticket, steps)
            return
        if not ticket.queued:
            line.queue(ticket)
        self._counters["config-offloaded"] += 1
        self._world.offload(resolve, tasks, partial(self._on_resolved, line, ticket))

    def _tasks(self, line: Line, ticket: Ticket, machine: ConfigMachine) -> list[Task]:
        application, bytes_max = line.application, self.settings.value_bytes_max
        edits: dict[str, list[Edit]] = {}
        for edit in ticket.publish.edits:
            edits.setdefault(edit.name, []).append(edit)
        tasks = []
        for name, several in edits.items():
            edit, source = several[0], None
            if isinstance(edit, Uploaded):
                source = machine.uploads.finished(
                    application, edit.upload, edit.length, edit.digest
                )
            elif isinstance(edit, Rollback):
                source = machine.content_at(application, name, edit.version)
            present = line.present(machine, name)
            tasks.append(Task(application, several, present, bytes_max, source))
        return tasks

    def _on_resolved(self, line: Line, ticket: Ticket, result: list[Ready] | Exception) -> None:
        machine = self._machine(ticket.execute)
        if machine is None or self._is_known(ticket.execute):
            self._hand_on(line, ticket)
        elif line.settling or ticket.bases != line.ids(machine, ticket.names):
            self._busy(line, ticket)  # The heads that it rests on never came about.
        elif isinstance(result, list):
            self._order(line, ticket, result)
        elif isinstance(result, UnavailableError):
            self._busy(line, ticket)
        elif isinstance(result, SwellError):
            self._refuse(line, ticket, str(result))
        else:
            self._fail(line, ticket, result)

    # Ordering.

    def _order(self, line: Line, ticket: Ticket, steps: list[Ready]) -> None:
        wall_us, keep_versions = self._world.wall_us(), self.settings.keep_versions
        body = step_of(ticket, steps, wall_us, keep_versions)
        if len(body) > STEP_BYTES_MAX:
            sentence = f"the step takes {len(body)} bytes, allowed are {STEP_BYTES_MAX}: divide it"
            self._refuse(line, ticket, sentence)
            return
        ordered = Ordered(steps)
        line.under_way += 1
        request = replace(ticket.execute, body=body)
        self._store.execute(request, partial(self._on_outcome, line, ordered, ticket.done))
        if not ordered.settled:
            line.order(ordered, steps)
        self._pass(line, ticket)

    def _on_outcome(
        self, line: Line, ordered: Ordered, done: Done, status: Status, body: bytes
    ) -> None:
        line.under_way -= 1
        ordered.settled = True
        if ordered.waited_for:
            # While the line settles, what was predicted rests on what did not come about.
            good = not line.settling and ordered.as_predicted(status, body)
            if not good and not line.settling:
                self._counters["config-mispredicted"] += 1
            line.settle(ordered, good)
        self._drop_idle(line)
        done(status, body)

    def _pass(self, line: Line, ticket: Ticket) -> None:
        """The ticket is through: others may go on."""
        for following in line.release(ticket):
            self._run(following)
        self._drop_idle(line)

    def _drop_idle(self, line: Line) -> None:
        if line.idle and self._lines.get(line.application) is line:
            del self._lines[line.application]

    # Answers without ordering.

    def _hand_on(self, line: Line, ticket: Ticket) -> None:
        """To the store as it came: it was seen before, or is another node's."""
        self._pass(line, ticket)
        self._store.execute(ticket.execute, ticket.done)

    def _busy(self, line: Line, ticket: Ticket) -> None:
        self._counters["config-busy"] += 1
        self._pass(line, ticket)
        ticket.done(Status.BUSY, _CHANGING)

    def _fail(self, line: Line, ticket: Ticket, error: Exception) -> None:
        """A mistake of our own: it is reported by an event of its own, and blocks nobody."""
        self._counters["config-unresolvable"] += 1
        self._pass(line, ticket)
        sentence = f"this node could not make sense of it ({type(error).__name__}): report it"
        ticket.done(Status.REFUSED, sentence.encode())

        def report() -> None:
            raise error

        self._world.call_later(0.0, report)

    def _refuse(self, line: Line, ticket: Ticket, sentence: str) -> None:
        """Also a refusal has its place behind what it rests on, and stays what was said."""
        bases = tuple(zip(ticket.names, ticket.bases, strict=True))
        body = ops.encode(ops.Refuse(line.application, bases, sentence))
        self._store.execute(replace(ticket.execute, body=body), ticket.done)
        self._pass(line, ticket)
