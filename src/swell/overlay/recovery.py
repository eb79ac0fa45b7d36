"""Recovery of lost links between zones (THOR 3.5): periodic, never reactive.

At every check the lost zones are dealt out to the members so that their loads stay even; a node
takes its own share only. It claims the zone in its own zone, waits a moment, gives way to a claim
of a member with a smaller id, and then opens a link to candidates from the directory. While the
directory is away it asks the lost zone itself, by a detour, and takes the members it has cached
if that fails too. Shutdown and failure take this same path.

The zone of higher priority recovers; the other one only if nothing came of it for several checks
(the first may not know of it while the directory is away).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from swell.overlay.clique import Clique
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, RecoveryClaim
from swell.overlay.opening import OPENING, RECOVERY, Openings
from swell.overlay.sessions import Session, Sessions
from swell.overlay.zonelinks import ZoneLinks
from swell.settings import OverlaySettings
from swell.wire import codec
from swell.world import Timer, World

PATIENCE = 3
"""Checks that the zone of lower priority waits before it recovers by itself."""

CACHED_PER_ZONE_MAX = 8

Candidates = Callable[[int, int, Callable[[Sequence[Contact]], None]], None]
"""candidates(zone, count, done): random members of the zone, from the directory."""


def shares(lost: Iterable[int], loads: dict[int, int]) -> dict[int, int]:
    """Lost zone → the member that should recover it: always the least loaded one next."""
    heap = [(load, member) for member, load in sorted(loads.items())]
    heapq.heapify(heap)
    dealt: dict[int, int] = {}
    for zone in lost:
        load, member = heap[0]
        dealt[zone] = member
        heapq.heapreplace(heap, (load + 1, member))
    return dealt


class Recovery:
    """This node's part in keeping the graph of zones complete."""

    def __init__(
        self,
        world: World,
        settings: OverlaySettings,
        me: Contact,
        sessions: Sessions,
        clique: Clique,
        zonelinks: ZoneLinks,
        openings: Openings,
        alive: Callable[[], list[int]],
        zones: Callable[[], Iterable[int]],
        candidates: Candidates,
        ask_zone: Callable[[int, Callable[[Sequence[Contact]], None]], None],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._me = me
        self._clique = clique
        self._zonelinks = zonelinks
        self._openings = openings
        self._alive = alive
        self._zones = zones
        self._candidates = candidates
        self._ask_zone = ask_zone
        self._counters = counters
        self._missed: dict[int, int] = {}
        self._claims: dict[int, tuple[int, float]] = {}
        self._cache: dict[int, dict[int, Contact]] = {}
        self._timer: Timer | None = None
        self._running = False
        sessions.handle(RecoveryClaim, self.on_claim, (LinkKind.CLIQUE,))

    def start(self, bootstrap: Sequence[tuple[int, Sequence[Contact]]] = ()) -> None:
        """Begin the periodic check; open the links of the bootstrap list at once."""
        self._running = True
        for zone, contacts in bootstrap:
            self.remember(contacts)
            if zone not in self._zonelinks.holders:
                self._openings.open(zone, contacts, OPENING, lambda link: None)
        self._arm()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def remember(self, contacts: Iterable[Contact]) -> None:
        """Cache members of other zones."""
        for contact in contacts:
            if contact.zone == self._me.zone or contact.id == self._me.id:
                continue
            cached = self._cache.setdefault(contact.zone, {})
            cached.pop(contact.id, None)
            cached[contact.id] = contact
            if len(cached) > CACHED_PER_ZONE_MAX:
                del cached[next(iter(cached))]

    def lost(self) -> tuple[int, ...]:
        """Zones to which no member of this zone holds a link."""
        holders = self._zonelinks.holders
        return tuple(zone for zone in self._zones() if zone not in holders)

    def _arm(self) -> None:
        delay = self._settings.recovery_interval_s * (0.75 + 0.5 * self._world.rng.random())
        self._timer = self._world.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._arm()
        lost = self.lost()
        self._missed = {zone: self._missed.get(zone, 0) + 1 for zone in lost}
        known = dict.fromkeys(self._zones())
        for zone in [zone for zone in self._cache if zone not in known]:
            del self._cache[zone]
        if not lost:
            self._claims.clear()
            return
        now = self._world.now()
        self._claims = {z: claim for z, claim in self._claims.items() if claim[1] > now}
        due = [z for z in lost if self._missed[z] > (1 if z > self._me.zone else 1 + PATIENCE)]
        loads = {member: self._zonelinks.load_of(member) for member in self._alive()}
        for zone, member in shares(due, loads).items():
            free = zone not in self._claims and not self._openings.is_opening(zone)
            if member == self._me.id and free:
                self._claim(zone)

    def _claim(self, zone: int) -> None:
        self._claims[zone] = (self._me.id, self._world.now() + self._settings.lease_s)
        claim = codec.encode(RecoveryClaim(zone))
        for member in list(self._clique.up):
            self._clique.send(member, claim)
        self._world.call_later(self._settings.recovery_wait_s, lambda: self._recover(zone))

    def on_claim(self, session: Session, message: RecoveryClaim) -> None:
        """Leave the zone to the claimant, unless this node's own claim ranks higher."""
        now = self._world.now()
        current = self._claims.get(message.zone)
        if current is None or current[1] <= now or session.peer.id <= current[0]:
            self._claims[message.zone] = (session.peer.id, now + self._settings.lease_s)

    def _recover(self, zone: int) -> None:
        if not self._running:
            return
        claim = self._claims.get(zone)
        if claim is None or claim[0] != self._me.id or zone in self._zonelinks.holders:
            self._counters["recovery-aborted"] += 1
            return
        self._counters["recovery-begun"] += 1

        def answered(found: Sequence[Contact]) -> None:
            if found:
                self._open(zone, found)
            else:
                self._ask_zone(zone, lambda contacts: self._open(zone, contacts))

        self._candidates(zone, self._settings.candidates, answered)

    def _open(self, zone: int, found: Sequence[Contact]) -> None:
        if not self._running:
            return
        self.remember(found)
        if not found:
            cached = list(self._cache.get(zone, {}).values())
            count = min(len(cached), self._settings.candidates)
            found = self._world.rng.sample(cached, count)
        if self._openings.is_opening(zone) or zone in self._zonelinks.holders:
            return

        def opened(link: object) -> None:
            if link is None and self._claims.get(zone, (0, 0.0))[0] == self._me.id:
                del self._claims[zone]

        self._openings.open(zone, found, RECOVERY, opened)
