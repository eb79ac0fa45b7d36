"""Suspicions: how long a silent member may take to answer for itself.

A suspicion starts patient and becomes shorter as independent members confirm it (Lifeguard,
section IV.B). When it runs out there is a *last look*: one more probe, and a verdict only if the
timer of that look fired on time. A process that was stalled therefore reads the frames that
waited in its sockets, perhaps the refutation among them, before it condemns anybody.

Invariants: at most one suspicion and one timer per member; confirmations are counted once per
origin; the time-out never grows by a confirmation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from swell.overlay.awareness import Awareness
from swell.settings import MembershipSettings
from swell.world import Timer, World


def expected_confirmations(multiplier: int, members: int) -> int:
    """k: how many others must agree before the shortest time-out applies; 0 if there are not
    enough of them."""
    k = max(0, multiplier - 2)
    return k if members - 2 >= k else 0


def suspicion_timeout_s(
    minimum_s: float, maximum_s: float, expected: int, confirmations: int
) -> float:
    """The whole length of a suspicion after so many of the expected confirmations."""
    if expected == 0:
        return minimum_s
    shrunk = math.log(confirmations + 1) / math.log(expected + 1)
    return max(minimum_s, maximum_s - (maximum_s - minimum_s) * shrunk)


class Suspicion:
    """One suspected member."""

    __slots__ = (
        "begun_s", "due_s", "expected", "last_look", "maximum_s",
        "member", "minimum_s", "origins", "timer", "wait_s",
    )  # fmt: skip

    def __init__(
        self, member: int, origin: int, begun_s: float, minimum_s: float, maximum_s: float, k: int
    ) -> None:
        self.member = member
        self.origins = [origin]
        self.begun_s = begun_s
        self.minimum_s = minimum_s
        self.maximum_s = maximum_s
        self.expected = k
        self.last_look = False
        self.due_s = begun_s
        self.wait_s = 0.0
        self.timer: Timer | None = None

    @property
    def timeout_s(self) -> float:
        return suspicion_timeout_s(
            self.minimum_s, self.maximum_s, self.expected, len(self.origins) - 1
        )


class Suspicions:
    """All suspicions of one node, with their timers."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        awareness: Awareness,
        look: Callable[[int], None],
        condemn: Callable[[int], None],
    ) -> None:
        self._world = world
        self._settings = settings
        self._awareness = awareness
        self._look = look
        self._condemn = condemn
        self._suspicions: dict[int, Suspicion] = {}

    def __len__(self) -> int:
        return len(self._suspicions)

    def begin(self, member: int, origin: int, members: int) -> None:
        """Start suspecting; an earlier suspicion of the same member is replaced."""
        self.end(member)
        minimum_s = self._settings.suspicion_min_s(members)
        suspicion = Suspicion(
            member,
            origin,
            self._world.now(),
            minimum_s,
            minimum_s * self._settings.suspicion_max_factor,
            expected_confirmations(self._settings.suspicion_multiplier, members),
        )
        self._suspicions[member] = suspicion
        self._arm(suspicion, suspicion.timeout_s)

    def confirm(self, member: int, origin: int) -> bool:
        """Note that `origin` agrees. True if that is news worth passing on."""
        suspicion = self._suspicions.get(member)
        if suspicion is None or origin in suspicion.origins:
            return False
        if len(suspicion.origins) > suspicion.expected:
            return False
        suspicion.origins.append(origin)
        if not suspicion.last_look:
            left_s = suspicion.begun_s + suspicion.timeout_s - self._world.now()
            self._arm(suspicion, max(0.0, left_s))
        return True

    def end(self, member: int) -> None:
        """The member answered for itself, or is dead already."""
        suspicion = self._suspicions.pop(member, None)
        if suspicion is not None and suspicion.timer is not None:
            suspicion.timer.cancel()

    def stop(self) -> None:
        for member in list(self._suspicions):
            self.end(member)

    def _arm(self, suspicion: Suspicion, wait_s: float) -> None:
        if suspicion.timer is not None:
            suspicion.timer.cancel()
        suspicion.wait_s = wait_s
        suspicion.due_s = self._world.now() + wait_s
        suspicion.timer = self._world.call_later(wait_s, lambda: self._expire(suspicion))

    def _expire(self, suspicion: Suspicion) -> None:
        late_s = self._world.now() - suspicion.due_s
        if not suspicion.last_look:
            # Before the last look any lateness counts; it only costs another round of patience.
            stalled = self._awareness.stalled(late_s, 0.0)
        else:
            stalled = self._awareness.stalled(late_s, suspicion.wait_s)
            if not stalled:
                self.end(suspicion.member)
                self._condemn(suspicion.member)
                return
        suspicion.last_look = True
        look_s = self._awareness.patience_s(self._settings.probe_timeout_s)
        self._arm(suspicion, suspicion.minimum_s if stalled else look_s)
        self._look(suspicion.member)
