"""Many keys at once: every key is written, later every key is read, a few at a time per client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from swell.simulation.simulation import Simulation
from swell.simulation.workloads.store_clients import Input, StoreClient

WINDOW = 8
"""Operations that a client has under way."""
DEADLINE_S = 20.0
WITHIN_S = 120.0


class Loading:
    """The keys and the values that they were given."""

    def __init__(
        self, simulation: Simulation, clients: Sequence[StoreClient], keys: Sequence[str]
    ) -> None:
        self._simulation = simulation
        self._clients = clients
        self._values = {key: f"value of {key}" for key in keys}
        self._left: deque[str] = deque()
        self.waiting = 0
        """Keys whose operation was not answered."""

    def write(self) -> bool:
        """Write all of them; was everything acknowledged?"""
        return self._each(lambda key: ("put", self._values[key]), lambda key, output: None)

    def read(self) -> list[str]:
        """Read all of them; what is lost or wrong."""
        wrong: list[str] = []

        def compare(key: str, output: object) -> None:
            if output != self._values[key]:
                wrong.append(f"{key} holds {output}, written was {self._values[key]}")

        if not self._each(lambda key: ("get",), compare):
            wrong.append(f"{self.waiting} keys could not be read")
        return wrong

    def _each(
        self, operation: Callable[[str], Input], answered: Callable[[str, object], None]
    ) -> bool:
        self._left = deque(self._values)
        self.waiting = len(self._values)

        def next_one(client: StoreClient) -> None:
            if not self._left:
                return
            key = self._left.popleft()

            def ended(known: bool) -> None:
                if known:
                    self.waiting -= 1
                    answered(key, client.heard)
                next_one(client)

            client.execute(key, operation(key), DEADLINE_S, ended)

        for client in self._clients:
            for _ in range(WINDOW):
                next_one(client)
        return self._simulation.run_until_true(lambda: not self.waiting, WITHIN_S, 0.1)
