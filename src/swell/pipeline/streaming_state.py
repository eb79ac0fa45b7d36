"""What a bucket of a streaming audit remembers: rows that wait, versions, subscriptions, progress.

Encoded as one value. Everything is bounded by the horizon of the audit, or by the number of
containers, configurations and primaries; of containers that are gone for long, and of earlier lives
of primaries, nothing is kept.
"""

from __future__ import annotations

import msgspec

from swell.config.delivery.interest import WILDCARD
from swell.config.names import RESERVED
from swell.events.schema import Kind
from swell.pipeline.streaming_progress import ContainerLife, Progress

Place = tuple[str, int, int]
"""Of a row: node, start, row."""


class Seen(msgspec.Struct, array_like=True, gc=False):
    """What the rules need of a row; `time_us` is where it stands on the stream's clock."""

    time_us: int
    kind: str
    at_us: int
    mono_us: int
    node: str
    start: int
    row: int
    role: str
    application: str | None
    name: str | None
    first: int | None
    sequence: int | None
    epoch: int | None
    digest: bytes | None
    peer: str | None
    sent_us: int | None
    step: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it has what its kind needs; rows of the board have no application."""
        if self.kind in (Kind.STOP, Kind.CRASH_FOUND):
            return True
        numbered = self.kind in (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) or self.sequence is not None
        named = self.kind not in (Kind.STORE, Kind.APPLY, Kind.REJECT) or self.name is not None
        return self.application is not None and numbered and named

    @property
    def place(self) -> Place:
        return self.node, self.start, self.row

    @property
    def across(self) -> tuple[int, str, int, int]:
        return self.at_us, self.node, self.start, self.row

    @property
    def subject(self) -> str:
        return self.node if self.peer is None else self.peer


class Version(msgspec.Struct, array_like=True):
    """A stored version that is not forgotten yet."""

    store: Seen
    digests: list[bytes | None]
    judged: bool = False


class Versions(msgspec.Struct, array_like=True):
    """Of one configuration."""

    kept: dict[int, Version] = {}
    numbers: list[tuple[int, int]] = []
    """All that were ever stored, as ranges: what is forgotten is still known to have been."""

    def knows(self, number: int | None) -> bool:
        return number is not None and any(low <= number <= high for low, high in self.numbers)


class Subscription(msgspec.Struct, array_like=True):
    """Of a container; `end_us` is none while it goes on."""

    application: str
    container: str
    pattern: str
    begin: tuple[int, str, int, int]
    end_us: int | None = None

    def matches(self, name: str) -> bool:
        if self.pattern and not self.pattern.endswith(WILDCARD):
            return name == self.pattern
        reserved = name.startswith(RESERVED) and not self.pattern.startswith(RESERVED)
        return name.startswith(self.pattern[:-1]) and not reserved


class State(msgspec.Struct):
    """All that a bucket remembers."""

    waiting: list[Seen] = []
    stored: dict[str, dict[str, Versions]] = {}
    """Application, name."""
    subscriptions: list[Subscription] = []
    progress: dict[str, dict[str, dict[str, Progress]]] = {}
    """Container, application, name."""
    lives: dict[str, ContainerLife] = {}
    unresolved: list[Seen] = []
    """Apply rows of versions whose store rows have not come yet."""
    acked: dict[str, dict[str, dict[str, int]]] = {}
    """Primary and its start, container and application, name: since the container subscribed."""
    held: dict[str, dict[str, dict[str, int]]] = {}
    """The same, over all its subscriptions."""
    clocks: dict[str, dict[str, int]] = {}
    """Container, application and epoch: the smallest `at - sent_at`."""
    nodes: dict[str, None] = {}
    """That have stored anything or begun."""
    begins_late: bool = False
    """A node lived before the first of its rows that the log has."""

    def forget_containers(self, gone: set[str]) -> None:
        if not gone:
            return
        for container in gone:
            del self.lives[container]
            self.progress.pop(container, None)
            self.clocks.pop(container, None)
        for at_primaries in (self.acked, self.held):
            for primary, feeds in list(at_primaries.items()):
                for feed in [one for one in feeds if one.rpartition(" ")[0] in gone]:
                    del feeds[feed]
                if not feeds:
                    del at_primaries[primary]

    def forget_primaries(self, node: str, start: int) -> None:
        """A node has begun a life: nobody comes back to an earlier one."""
        for at_primaries in (self.acked, self.held):
            for primary in list(at_primaries):
                name, _, life = primary.rpartition(" ")
                if name == node and int(life) < start:
                    del at_primaries[primary]
