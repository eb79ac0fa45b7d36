"""Under which session and number the store knows a client's operations."""

from __future__ import annotations

from swell.client.session_routes import Routes
from swell.store.once import SECOND_SHIFT
from swell.world import World

SESSION_S = 3600.0
"""A new session is begun that often, well before the store forgets the old one."""

NUMBER_BYTES = 6
"""Numbers begin by chance: should two clients ever draw the same session, neither takes the
other's results for its own."""


class Numbers:
    """Numbers grow for ever; sessions come and go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = int.from_bytes(world.entropy(NUMBER_BYTES), "big")
        self._session = 0
        self._session_until = 0.0

    def next(self) -> int:
        self._number += 1
        return self._number

    def session_at(self, now: float, routes: Routes) -> int:
        """The session of now, which begins with the second by the cluster's clocks."""
        if now >= self._session_until:
            opened_s = routes.cluster_s(now)
            chance = int.from_bytes(self._world.entropy(SECOND_SHIFT // 8), "big")
            self._session = opened_s << SECOND_SHIFT | chance
            self._session_until = now + SESSION_S
        return self._session

    def leave(self, session: int) -> None:
        """Begin no more operations under this session: it has expired, or another client has
        drawn the same."""
        if session == self._session:
            self._session_until = 0.0
