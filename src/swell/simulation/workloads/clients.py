"""Clients: processes with a session of the store that ask, wait and think.

A client that crashes comes back as another client with a session of its own; what it had asked is
of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from swell.client.store_session import StoreSession
from swell.simulation.fleet import CLUSTER
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.world import Address, World

THINK_S = (0.1, 1.0)
THREADS = 2
"""Operations that a client has under way: while a slot is down it goes on with others."""


class Client:
    """One client process. It thinks and asks until `resting`."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        site: str,
        nodes: Callable[[], Sequence[str]],
        think_s: tuple[float, float] = THINK_S,
    ) -> None:
        self.name = name
        self.rng: Random = simulation.rng(name)
        self.resting = False
        self.simulation = simulation
        self._think_s = think_s
        self._nodes = nodes
        self.process: Process = simulation.add(name, site, self._factory)

    def _factory(self, world: World) -> StoreSession:
        names = list(self._nodes())
        self.rng.shuffle(names)
        return StoreSession(world, CLUSTER, [Address(name, 0) for name in names])

    def start(self) -> None:
        self.process.start()
        for _ in range(THREADS):
            self.think()

    def crash(self) -> None:
        """Die without a word, and come back as somebody else."""
        self.process.crash()
        self.forget()
        self.start()

    @property
    def session(self) -> StoreSession:
        node = self.process.node
        assert isinstance(node, StoreSession)
        return node

    def think(self) -> None:
        starts = self.process.starts

        def go_on() -> None:
            if not self.resting and self.process.starts == starts:
                self.ask()

        self.simulation.call_later(self.rng.uniform(*self._think_s), go_on)

    def ask(self) -> None:
        """Begin an operation, after which it thinks again."""
        raise NotImplementedError

    def forget(self) -> None:
        """It has crashed: whatever is open is of unknown outcome."""
        raise NotImplementedError
