"""A relay's links to those on its lists: dialled when needed, kept, bounded.

The first frame on a link is the relay's pass, and a pass of another node whenever a burst of that
node follows: the sibling knows the keys of the nodes that serve it, and no others. What a link has
no room for waits, bounded; a sibling that could not be reached is left alone for a moment.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from swell.config.messages import Introduce
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.wire.codec import encode
from swell.world import Address, Plane, Timer, World

CHILDREN_MAX = 256
QUEUE_BYTES_MAX = 1024 * 1024
"""What waits for one sibling."""

IDLE_S = 60.0
RETRY_S = 0.5
RETRY_S_MAX = 30.0

_DATA = Plane.DATA


class Child:
    """A sibling behind this relay."""

    __slots__ = (
        "address", "blocked", "failures", "passes", "queue", "queued_bytes", "retry_at", "session",
        "used_at",
    )  # fmt: skip

    def __init__(self, address: Address) -> None:
        self.address = address
        self.session: Session | None = None
        self.blocked = True
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.passes: list[bytes] = []
        """Shown on this link."""
        self.failures = 0
        self.retry_at = 0.0
        self.used_at = 0.0


class Children:
    """`lost(child)`: what was sent to it, or waited for it, will not be answered."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        counters: Counter[str],
        lost: Callable[[Child], None],
    ) -> None:
        self._world = world
        self._sessions = sessions
        self._counters = counters
        self._lost = lost
        self._by_address: dict[Address, Child] = {}
        """Those used last are last."""
        self._of: dict[Session, Child] = {}
        self._timer: Timer | None = None

    def of(self, session: Session) -> Child | None:
        return self._of.get(session)

    @property
    def links(self) -> int:
        return len(self._of)

    def send(self, address: Address, frame: bytes, pass_: bytes, now: float) -> bool:
        """Send a burst, now or when there is a link with room; False: it will not be sent."""
        child = self._by_address.get(address)
        if child is None:
            child = Child(address)
            self._make_room()
        else:
            del self._by_address[address]
        self._by_address[address] = child
        child.used_at = now
        session = child.session
        if session is None and not self._dial(child, now):
            return False
        frames = (frame,) if pass_ in child.passes else (encode(Introduce(pass_)), frame)
        if not child.blocked and not child.queue:
            assert session is not None
            if all(session.link.send(one, _DATA) for one in frames):
                self._note_pass(child, pass_)
                return True
            child.blocked = True
        size = sum(map(len, frames))
        if child.queued_bytes + size > QUEUE_BYTES_MAX:
            self._counters["relay-full"] += 1
            return False
        self._note_pass(child, pass_)
        child.queue.extend(frames)
        child.queued_bytes += size
        return True

    def _note_pass(self, child: Child, pass_: bytes) -> None:
        if pass_ not in child.passes:
            child.passes.append(pass_)
            del child.passes[:-4]

    def _dial(self, child: Child, now: float) -> bool:
        if now < child.retry_at:
            return False
        session = self._sessions.open(child.address, "", LinkKind.RELAY, self)
        child.session = session
        self._of[session] = child
        if self._timer is None:
            self._timer = self._world.call_later(IDLE_S, self.expire_idle)
        return True

    def _make_room(self) -> None:
        if len(self._by_address) >= CHILDREN_MAX:
            oldest = next(iter(self._by_address.values()))
            del self._by_address[oldest.address]
            self._drop(oldest, "too many links")

    def expire_idle(self) -> None:
        """Close links that were not used for a while."""
        self._timer = None
        before = self._world.now() - IDLE_S
        for child in list(self._by_address.values()):
            if child.used_at < before:
                del self._by_address[child.address]
                self._drop(child, "idle")
        if self._by_address:
            self._timer = self._world.call_later(IDLE_S, self.expire_idle)

    def _drop(self, child: Child, reason: str) -> None:
        session = child.session
        if session is not None:
            del self._of[session]
            session.close(drain=True, reason=reason)
            self._forget_link(child)
            self._lost(child)

    def _forget_link(self, child: Child) -> None:
        child.session = None
        child.blocked = True
        child.passes.clear()
        child.queue.clear()
        child.queued_bytes = 0

    # Links.

    def on_open(self, session: Session) -> None:
        child = self._of[session]
        child.failures = 0
        self.flush(child)

    def flush(self, child: Child) -> None:
        """There is a link, and room on it."""
        session = child.session
        if session is None or not session.open:
            return
        child.blocked = False
        queue = child.queue
        while queue:
            if not session.link.send(queue[0], _DATA):
                child.blocked = True
                return
            child.queued_bytes -= len(queue.popleft())

    def on_closed(self, session: Session, reason: str) -> None:
        child = self._of.pop(session)
        self._forget_link(child)
        self._counters["child-lost"] += 1
        delay_s = min(RETRY_S_MAX, RETRY_S * 2**child.failures)
        child.failures = min(child.failures + 1, 16)
        jitter = 0.75 + 0.5 * self._world.rng.random()
        child.retry_at = self._world.now() + delay_s * jitter
        self._lost(child)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
