"""A container as a relay: it forwards bursts to those on a list and gathers their receipts.

It computes nothing beyond that (RIP-8): the burst's bytes go out as they came, in a frame that is
built once. Lists travel as digests and are kept (RIP-9); a list that is missing is asked of
whoever sent the burst, which waits, bounded in time and bytes. A sibling's list counts only with
the signature of a node. Ripple 3.4, 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from swell.config.bursts import Burst, about_burst
from swell.config.messages import (
    Itemize,
    Items,
    Level,
    ListRequest,
    Lists,
    Receipt,
    deliver,
)
from swell.container.aggregation import Aggregate
from swell.container.branch import Branch
from swell.container.children import Child, Children
from swell.container.lists import KnownList, ListCache
from swell.container.load import Load
from swell.events.records import Relayed
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.settings import ConfigSettings
from swell.wire import codec
from swell.world import World

BRANCHES_MAX = 256
"""Bursts with their lists that are remembered."""

RELAYS_WAIT = 1.5
"""How much longer a relay waits that has relays behind it."""

PARKED_BYTES_MAX = 4 * 1024 * 1024
"""Bursts that wait for their lists."""

_DELIVERED = int(Level.DELIVERED)


class Relay:
    """All that one container forwards."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        load: Load,
        settings: ConfigSettings,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self._world = world
        self.load = load
        self._settings = settings
        self._counters = counters
        self.is_signed: Callable[[bytes, bytes], bool] = lambda digest, signature: False
        """Whether a node has signed the list with a digest."""
        self._bugs = bugs
        self.lists = ListCache(counters)
        self.children = Children(world, sessions, counters, self.on_child_lost)
        self._branches: dict[tuple[bytes, bytes], Branch] = {}
        """By burst and list, the oldest first."""
        self._by_burst: dict[bytes, list[Branch]] = {}
        self._parked_bytes = 0
        kinds = (LinkKind.CLIENT, LinkKind.RELAY)
        sessions.handle(Lists, self.on_lists, kinds)
        sessions.handle(Itemize, self.on_itemize, (LinkKind.CLIENT,))
        sessions.handle(ListRequest, self.on_list_request, (LinkKind.RELAY,))
        sessions.handle_frames(Receipt.wire_type, self.on_receipt, (LinkKind.RELAY,))  # type: ignore[attr-defined]

    def pass_on(
        self,
        upstream: Session,
        digest: bytes,
        burst: Burst,
        data: bytes,
        pass_: bytes,
        wait_s: float = 0.0,
    ) -> Branch:
        """Forward a verified burst to everybody on a list, and wait for them as long as whoever
        sent it says."""
        wait_s = min(wait_s, self._settings.receipt_wait_s_max) or self._settings.receipt_wait_s
        name = burst.id, digest
        branch = self._branches.get(name)
        if branch is not None and branch.aggregate is not None:
            branch.wait_s = wait_s
            self._pass_on_again(branch, branch.aggregate, upstream, data)
            return branch
        known = self.lists.get(digest)
        if branch is not None:
            self._forget(name)
        branch = Branch(self.load, upstream, digest, burst.id, data, pass_, wait_s)
        self._branches[name] = branch
        self._by_burst.setdefault(burst.id, []).append(branch)
        if len(self._branches) > BRANCHES_MAX:
            self._forget(next(iter(self._branches)))
        if known is not None:
            self._forward(branch, known, data, None)
        else:
            self._park(branch)
        return branch

    def pass_unasked(self, digest: bytes, data: bytes, pass_: bytes) -> bool:
        """Forward a verified burst that asks for no receipts; False if its list is not here. Who
        cannot be reached is found out by the next one."""
        known = self.lists.get(digest)
        if known is None:
            return False
        self._send_to(known, range(1, len(known.entries) + 1), data, pass_, asks=False)
        return True

    def _pass_on_again(
        self, branch: Branch, aggregate: Aggregate, upstream: Session, data: bytes
    ) -> None:
        self._counters["relayed-again"] += 1
        branch.upstream = upstream
        aggregate.again(branch.send, self._wait_s(branch))
        self._send_down(branch, data, aggregate.unanswered())

    def _forget(self, name: tuple[bytes, bytes]) -> None:
        branch = self._branches.pop(name)
        others = self._by_burst[branch.burst]
        others.remove(branch)
        if not others:
            del self._by_burst[branch.burst]
        self._unpark(branch)
        if branch.aggregate is not None:
            branch.aggregate.stop()

    def _forward(
        self, branch: Branch, known: KnownList, data: bytes, own: tuple[int, bytes] | None
    ) -> None:
        count = len(known.entries) + 1
        branch.known = known
        wait_s = self._wait_s(branch)
        aggregate = Aggregate(self._world, branch.burst, branch.digest, count, wait_s, branch.send)
        branch.aggregate = aggregate
        places: Sequence[int] = range(1, count)
        if "ack-before-children" in self._bugs:
            places = range(1, count - 1)
            branch.send(Receipt(branch.burst, int(Level.APPLIED), bytes(16), branch.digest))
            aggregate.begun = True
        self._send_down(branch, data, places)
        if own is not None:
            branch.settle(*own)

    def _wait_s(self, branch: Branch) -> float:
        """A relay below names those who are silent behind it first."""
        below = branch.known is not None and branch.known.below
        return branch.wait_s * (RELAYS_WAIT if below else 1.0)

    def _send_down(self, branch: Branch, data: bytes, places: Sequence[int]) -> None:
        aggregate, known = branch.aggregate, branch.known
        assert aggregate is not None
        assert known is not None
        for place in self._send_to(known, places, data, branch.pass_, branch.wait_s):
            aggregate.lose(place)

    def _send_to(
        self,
        known: KnownList,
        places: Sequence[int],
        data: bytes,
        pass_: bytes,
        wait_s: float = 0.0,
        asks: bool = True,
    ) -> list[int]:
        """A burst to these places of a list; which of them cannot be reached."""
        frames: dict[bytes, bytes] = {}
        lost: list[int] = []
        now = self._world.now()
        children = self.children
        self._counters["relayed"] += len(places)
        for place in places:
            if not place:
                continue
            address, below = known.entries[place - 1]
            frame = frames.get(below)
            if frame is None:
                frame = frames[below] = deliver(below, data, wait_s, asks)
            if not children.send(address, frame, pass_, now):
                lost.append(place)
        if self._world.recording:
            got = [place for place in places if place not in lost] if lost else places
            self._record(known, data, got)
        return lost

    def _record(self, known: KnownList, data: bytes, places: Sequence[int]) -> None:
        about, peers = about_burst(data), known.names
        if len(places) != len(peers) or not places[0]:
            peers = tuple(peers[place - 1] for place in places if place)
        if not peers:
            return
        steps = about.after + 1, about.upto
        self._world.emit(Relayed(about.application, peers, *steps, about.epoch, len(data)))

    # Lists.

    def _park(self, branch: Branch) -> None:
        """Ask for the list; the burst waits for it."""
        self._counters["list-miss"] += 1
        if self._parked_bytes + len(branch.data) > PARKED_BYTES_MAX:
            self._counters["parked-full"] += 1
            branch.data = b""
            return
        self._parked_bytes += len(branch.data)
        branch.timer = self._world.call_later(branch.wait_s, lambda: self.expire_parked(branch))
        branch.upstream.send(ListRequest((branch.digest,)))

    def _unpark(self, branch: Branch) -> None:
        if branch.timer is not None:
            branch.timer.cancel()
            branch.timer = None
            self._parked_bytes -= len(branch.data)
            branch.data = b""

    def expire_parked(self, branch: Branch) -> None:
        """No list came: nobody behind this relay has the burst by it."""
        self._counters["list-missing"] += 1
        self._unpark(branch)
        if branch.own is not None:
            branch.settle(*branch.own)

    def on_lists(self, session: Session, message: Lists) -> None:
        """From a node, or from the relay that this container has asked, with a node's signature."""
        signatures = message.signatures + (b"",) * (len(message.lists) - len(message.signatures))
        for one, signature in zip(message.lists, signatures, strict=False):
            digest = one.digest()
            if session.kind == LinkKind.RELAY and not self._is_good(session, digest, signature):
                self._counters["list-refused"] += 1
                continue
            self.lists.put(digest, one, signature)
            for asker in self.lists.askers(digest):
                if asker.open:
                    asker.send(Lists((one,), (signature,)))
            for branch in self._waiting_for(digest):
                data = branch.data
                self._unpark(branch)
                self._forward(branch, self.lists.known(digest), data, branch.own)

    def _waiting_for(self, digest: bytes) -> list[Branch]:
        return [
            branch
            for branch in self._branches.values()
            if branch.digest == digest and branch.timer is not None
        ]

    def _is_good(self, session: Session, digest: bytes, signature: bytes) -> bool:
        """Whether a sibling was asked for this list, and a node has signed it."""
        asked = any(branch.upstream is session for branch in self._waiting_for(digest))
        return asked and self.is_signed(digest, signature)

    def on_list_request(self, session: Session, request: ListRequest) -> None:
        """A relay below misses its list: it is here, or whoever made this container relay to it
        has it."""
        if not session.link.dialed:
            return
        found: list[KnownList] = []
        for digest in request.digests:
            one = self.lists.get(digest)
            if one is not None:
                found.append(one)
                continue
            branches = self._branches.values()
            branch = next((b for b in branches if b.known and digest in b.known.below), None)
            if branch is not None:
                self.lists.note_asker(digest, session)
                branch.upstream.send(ListRequest((digest,)))
        if found:
            lists = tuple(one.message for one in found)
            session.send(Lists(lists, tuple(one.signature for one in found)))

    # Receipts.

    def on_receipt(self, session: Session, frame: bytes) -> None:
        """Of a sibling that this relay serves. What it says of itself alone counts where it is a
        leaf: the place of a relay below stands for all behind it, and a burst may come to it as
        both."""
        child = self.children.of(session)
        if child is None:
            self._counters["stray-receipt"] += 1
            return
        receipt: Receipt = codec.decode(frame)
        if receipt.list:
            self._on_relays_receipt(child, receipt, frame)
            return
        found = False
        for branch in self._by_burst.get(receipt.burst, ()):
            aggregate, place = branch.aggregate, branch.place_of(child)
            if aggregate is not None and branch.is_leaf(place):
                found = True
                for at, score in receipt.scores:
                    if not at:
                        aggregate.note_score(place, score)
                aggregate.settle(place, receipt.level, receipt.proof)
        if not found:
            self._counters["stray-receipt"] += 1

    def _on_relays_receipt(self, child: Child, receipt: Receipt, frame: bytes) -> None:
        """A relay below speaks for its list, and for no other. Said of all, it counts for its place
        here; else, or if scores ride on it, it goes up as it is."""
        whole = not receipt.missing and not receipt.only
        for branch in self._by_burst.get(receipt.burst, ()):
            aggregate, known = branch.aggregate, branch.known
            if aggregate is None or known is None:
                continue
            place = branch.place_of(child)
            if not place or known.below.get(receipt.list) != place:
                continue
            if (receipt.scores or not whole) and branch.upstream.open:
                branch.upstream.link.send(frame)
            if whole:
                aggregate.settle(place, receipt.level, receipt.proof)
            else:
                aggregate.lose(place)
            return
        self._counters["stray-receipt"] += 1

    def on_itemize(self, session: Session, question: Itemize) -> None:
        """A node wants to know whose proof has spoiled what this relay said."""
        branch = self._branches.get((question.burst, question.list))
        if branch is not None and branch.aggregate is not None:
            self._counters["itemized"] += 1
            session.send(Items(question.burst, question.list, branch.aggregate.items()))

    def on_child_lost(self, child: Child) -> None:
        for branch in self._branches.values():
            place = branch.place_of(child)
            if place and branch.aggregate is not None:
                branch.aggregate.lose(place)

    def on_upstream_lost(self, session: Session) -> None:
        """Nobody is there to report to; who sent it will learn by other means."""
        for name, branch in list(self._branches.items()):
            if branch.upstream is session:
                self._forget(name)

    def stop(self) -> None:
        for name in list(self._branches):
            self._forget(name)
        self.children.stop()
