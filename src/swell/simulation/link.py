"""One end of a simulated connection: an implementation of `swell.world.Link`.

Bytes travel from end to end as events of the heap, in order per direction. A link that ends by
itself passes through BROKEN (no more frames) until its node heard of it; a link that its node
closed is CLOSED at once and never heard of again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swell.errors import WireError
from swell.simulation.outgoing import BROKEN, CLOSED, OPENING, UP, Outgoing
from swell.simulation.trace import Kind
from swell.simulation.world import HELD
from swell.world import Address, Role

if TYPE_CHECKING:
    from swell.simulation.network import Network
    from swell.simulation.world import SimWorld

_FRAME = int(Kind.FRAME)


class SimLink(Outgoing):
    """The end of a connection that belongs to `world`; `other` is the opposite end."""

    __slots__ = ("dialed", "identity", "opened_s", "peer", "ready_s", "role", "session")

    def __init__(self, network: Network, world: SimWorld, address: Address, dialed: bool) -> None:
        super().__init__(network, world, address)
        self.dialed = dialed
        self.peer = ""
        self.role = Role.UNKNOWN
        self.identity = ""
        """Whom the dialler insists on; empty for anybody."""
        self.session: Any = None
        self.opened_s = self.simulation.time_s
        self.ready_s = 0.0
        """As a stream, see `swell.simulation.world`."""
        world.links[self] = None

    def __repr__(self) -> str:
        direction = "to" if self.dialed else "from"
        return f"link of {self.world.name} {direction} {self.address.host}"

    def close(self, drain: bool = False, reason: str = "") -> None:
        if self.state == CLOSED:
            return
        if not drain:
            self._drop_backlog()
        self._leave()
        self._say_farewell("closed")

    # -- the receiving side --------------------------------------------------------------------

    def arrive(self, frame: bytes) -> None:
        """A frame reached this end's machine."""
        world = self.world
        if world.gate or self.state != UP:
            self._arrive_slowly(frame)
            return
        simulation = self.simulation
        simulation.trace.note(simulation.time_s, world.process, _FRAME, frame, self)
        try:
            world.node.on_frame(self, frame)
        except WireError as error:
            self._refuse(error)

    def _arrive_slowly(self, frame: bytes) -> None:
        # A frame may arrive while the link's own announcement is still put off: it queues behind.
        if self.state in (BROKEN, CLOSED):
            return
        world = self.world
        if world.gate == HELD and self.other is not None:
            self.other._count_held(len(frame), world.process.suspended)
            world.admit(self, self._arrive_held, frame)
        else:
            world.admit(self, self._arrive_late, frame)

    def _arrive_held(self, frame: bytes) -> None:
        if self.other is not None:
            self.other._uncount(len(frame))
        self._arrive_late(frame)

    def _arrive_late(self, frame: bytes) -> None:
        if self.state != UP:
            return
        simulation = self.simulation
        simulation.trace.note(simulation.time_s, self.world.process, _FRAME, frame, self)
        try:
            self.world.node.on_frame(self, frame)
        except WireError as error:
            self._refuse(error)

    def _refuse(self, error: WireError) -> None:
        """The peer broke the protocol: the link ends on both sides."""
        self.simulation.counters[f"wire-error {error.reason}"] += 1
        if self.state == UP:
            self.break_off(f"wire-error {error.reason}")
            self._say_farewell("closed")

    def writable(self, _: None) -> None:
        self.world.admit(self, self._tell_writable, None)

    def _tell_writable(self, _: None) -> None:
        if self.state != UP:
            return
        simulation = self.simulation
        process = self.world.process
        simulation.trace.note(simulation.time_s, process, Kind.WRITABLE, self.peer.encode(), self)
        self.world.node.on_writable(self)

    # -- opening and ending --------------------------------------------------------------------

    def join(self, other: SimLink) -> None:
        self.other = other
        self.peer = other.world.process.identity
        self.role = other.world.process.role
        self._deliver = other.arrive

    def establish(self, _: None) -> None:
        """The dialler's handshake is complete."""
        self.world.admit(self, self._establish, None)

    def _establish(self, _: None) -> None:
        other = self.other
        assert other is not None
        if self.state != OPENING or other.state == CLOSED:
            other.discard()
            return
        self.state = UP
        self.refresh()
        self._push(other.announce, None)
        self._tell_up()

    def announce(self, _: None) -> None:
        """The accepting side's handshake is complete."""
        self.world.admit(self, self._announce, None)

    def _announce(self, _: None) -> None:
        if self.state != OPENING:
            return
        self.state = UP
        self.refresh()
        self._tell_up()

    def _tell_up(self) -> None:
        simulation = self.simulation
        process = self.world.process
        simulation.trace.note(simulation.time_s, process, Kind.LINK_UP, self.peer.encode(), self)
        self.world.node.on_link_up(self)

    def end(self, reason: str) -> None:
        """The end of the link arrives, behind all frames sent before it."""
        self.world.admit(self, self._end, reason)

    def _end(self, reason: str) -> None:
        if self.state == CLOSED:
            return
        announced = self.dialed or self.state != OPENING
        if self.state != BROKEN:
            self._drop_backlog()
        self._leave()
        if not announced:
            return
        simulation = self.simulation
        data = f"{self.peer} {reason}".encode()
        simulation.trace.note(simulation.time_s, self.world.process, Kind.LINK_DOWN, data, self)
        self.world.node.on_link_down(self, reason)

    def break_off(self, reason: str) -> None:
        """No frame passes any more in either direction; the node hears of it as an event."""
        if self.state == OPENING and not self.dialed:
            self.discard()
        elif self.state in (OPENING, UP):
            self._drop_backlog()
            self.state = BROKEN
            self._clear = False
            self.simulation.push(self.simulation.time_s, self.end, reason)

    def abort(self, power: bool) -> None:
        """This end's process died: the kernel resets the link, unless it died as well."""
        if self.state == CLOSED:
            return
        self._drop_backlog()
        self._leave()
        other = self.other
        if power and other is not None:
            other.orphaned()
        else:
            self._say_farewell("reset")

    def orphaned(self) -> None:
        if self.state == OPENING and not self.dialed:
            self.discard()
        elif self.state == OPENING:
            self.network.expire_later(self)
        elif self.state == UP:
            self.orphan = True
            self._clear = False
            if self._last_s > self.simulation.time_s:
                self._start_unacked()

    def discard(self) -> None:
        """An end that its node never heard of, or that has no node any more."""
        if self.state != CLOSED:
            self._leave()

    def _leave(self) -> None:
        self.state = CLOSED
        self._clear = False
        self.world.links.pop(self, None)
        self.network.stalled.pop(self, None)
