"""What the configurations of one application will be when all that is ordered has been applied.

A log is applied in order and what is cut off is always a tail, so a head is exactly what the next
command will find. Whenever an outcome is not the predicted one, the heads are dropped and nothing
more is ordered until all that is under way is settled: then the machine itself tells again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from swell.config import operations as ops
from swell.config.configuration import Present
from swell.config.machine import ConfigMachine
from swell.config.operations import Publish
from swell.config.requests import published_of
from swell.config.resolving import Ready
from swell.config.versions import NO_VERSION
from swell.errors import WireError
from swell.store.messages import Execute, Status

Done = Callable[[Status, bytes], None]

WAITING_MAX = 64
"""Commands that wait for the same configuration to be resolved."""


class Ticket:
    """A `publish` that is not ordered yet."""

    __slots__ = ("bases", "done", "execute", "names", "publish", "queued")

    def __init__(self, execute: Execute, publish: Publish, done: Done) -> None:
        self.execute = execute
        self.publish = publish
        self.done = done
        self.names = list(dict.fromkeys(edit.name for edit in publish.edits))
        self.bases: list[bytes] = []
        """Ids of the versions that it is resolved against."""
        self.queued = False
        """Whether it stands in the queues of its configurations."""


class Ordered:
    """A step that is under way: the versions it should make."""

    __slots__ = ("ids", "names", "settled", "waited_for")

    def __init__(self, steps: Sequence[Ready]) -> None:
        self.names = [ready.edit.name for ready in steps]
        self.ids = [ready.made.after.id for ready in steps]
        self.settled = False
        self.waited_for = False
        """Whether heads were built on it: not if it was answered at once."""

    def as_predicted(self, status: Status, body: bytes) -> bool:
        if status is not Status.DONE:
            return False
        try:
            return [made.id for made in published_of(body).made] == self.ids
        except WireError:
            return False


class Line:
    """One application at its primary: heads, what is under way, and who waits."""

    __slots__ = ("_heads", "_queues", "application", "settling", "under_way")

    def __init__(self, application: str) -> None:
        self.application = application
        self.under_way = 0
        self.settling = False
        self._heads: dict[str, tuple[Present, Ordered]] = {}
        self._queues: dict[str, deque[Ticket]] = {}
        """By configuration, in the order of arrival; the first of a queue is being resolved."""

    @property
    def idle(self) -> bool:
        return not self.under_way and not self._queues

    # Heads.

    def present(self, machine: ConfigMachine, name: str) -> Present:
        """What the next command on a configuration will find."""
        head = self._heads.get(name)
        if head is not None:
            return head[0]
        application = machine.application(self.application)
        if application is None:
            return Present(0, NO_VERSION, None)
        return application.present(name)

    def ids(self, machine: ConfigMachine, names: Iterable[str]) -> list[bytes]:
        return [self.present(machine, name).id for name in names]

    def order(self, ordered: Ordered, steps: Sequence[Ready]) -> None:
        """A step was ordered and its outcome is open."""
        ordered.waited_for = True
        for ready in steps:
            self._heads[ready.edit.name] = (ready.made.after, ordered)

    def settle(self, ordered: Ordered, good: bool) -> None:
        """The outcome of a step is known."""
        if good:
            for name in ordered.names:
                head = self._heads.get(name)
                if head is not None and head[1] is ordered:
                    del self._heads[name]
        else:
            self._heads.clear()
            self.settling = True
        if not self.under_way:
            self._heads.clear()
            self.settling = False

    # Waiting.

    def is_free(self, names: Iterable[str]) -> bool:
        return not any(name in self._queues for name in names)

    def has_room(self, names: Iterable[str]) -> bool:
        return all(len(self._queues.get(name, ())) < WAITING_MAX for name in names)

    def queue(self, ticket: Ticket) -> None:
        """Wait behind all that came before for the same configurations."""
        ticket.queued = True
        for name in ticket.names:
            self._queues.setdefault(name, deque()).append(ticket)

    def release(self, ticket: Ticket) -> list[Ticket]:
        """A ticket is through; those that are first everywhere now."""
        if not ticket.queued:
            return []
        ready: dict[Ticket, None] = {}
        for name in ticket.names:
            queue = self._queues[name]
            assert queue.popleft() is ticket
            if queue:
                ready[queue[0]] = None
            else:
                del self._queues[name]
        return [each for each in ready if self._is_first(each)]

    def _is_first(self, ticket: Ticket) -> bool:
        return all(self._queues[name][0] is ticket for name in ticket.names)


def step_of(ticket: Ticket, steps: Sequence[Ready], wall_us: int, keep_versions: int) -> bytes:
    """The command that goes into the log."""
    publish = ticket.publish
    return ops.encode(
        ops.Step(
            publish.application,
            tuple([ready.edit for ready in steps]),
            publish.author,
            publish.wall_us or wall_us,
            max(1, min(keep_versions, ops.VERSIONS_KEPT_MAX)),
        )
    )
