"""Real nodes in a simulation, containers that register as instances, and one that watches."""

from __future__ import annotations

from collections.abc import Callable

from swell.client.session_pending import Answer, Done
from swell.config import requests
from swell.config.names import INSTANCES, place
from swell.config.operations import CONFIG_SERVICE
from swell.container.documents import Update
from swell.container.registrations import Registration, Registrations
from swell.container.session import ContainerSession
from swell.errors import RefusedError, SwellError
from swell.events import Event, InstanceJudged
from swell.services.instances import Change, Instance, Instances, following, parse
from swell.settings import ServiceSettings, Settings, StoreSettings
from swell.simulation.checkers.store import weaknesses
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation
from swell.store.request import Request
from swell.world import Address, World

SERVICE = "pay"
TTL_S = 5.0
CALL_S = 20.0
SETTINGS = Settings(
    store=StoreSettings(slots=4, replicas=3),
    services=ServiceSettings(check_interval_s=1.0, check_timeout_s=0.5),
)


class Holder:
    """A process that registers one instance whenever it starts, and keeps it."""

    def __init__(self, cluster: Cluster, name: str, template: Instance, registers: bool) -> None:
        self.cluster = cluster
        self.name = name
        self.template = template
        self.registers = registers
        self.lost: list[str] = []
        self.registered: list[Registration | SwellError] = []
        self.heard: list[tuple[float, Instances, Change]] = []
        """When the list changed, as this container heard it."""
        self.registrations: Registrations
        self.session: ContainerSession
        self.process: Process = cluster.simulation.add(name, "s0", self._factory)
        self.process.start()

    def _factory(self, world: World) -> ContainerSession:
        addresses = [Address(name, 0) for name in self.cluster.fleet.processes]
        self.session = ContainerSession(
            world, CLUSTER, addresses, self.name, "app", "s0", hear=self._hear
        )
        self.registrations = Registrations(world, self.session.store)
        if self.registers:
            self.registrations.register(
                SERVICE, self.template, CALL_S, self.registered.append, self._on_lost
            )
        else:
            self.session.subscribe(SERVICE, (INSTANCES,))
        return self.session

    def _on_lost(self, error: RefusedError) -> None:
        self.lost.append(error.code)

    def _hear(self, update: Update) -> None:
        before = self.heard[-1][1] if self.heard else parse(b"")
        after, change = following(before, update.document.bytes())
        self.heard.append((self.cluster.simulation.time_s, after, change))

    def call(self, request: Request, done: Done) -> None:
        self.session.store.call(CONFIG_SERVICE, *request, CALL_S, done)


class Cluster:
    """Four nodes and what happens in one service."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.fleet = Fleet(self.simulation, SETTINGS, voters=3)
        self.judged: list[tuple[str, str]] = []
        for k in range(4):
            self.fleet.add(f"n{k}", "s0", rack=f"r{k % 2}")
        self.simulation.subscribers.append(self._on_event)
        self.until(lambda: not weaknesses(self.fleet), "the store forms", 60.0)
        self.watcher = self.add("watcher", registers=False)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, InstanceJudged):
            self.judged.append((event.instance, event.verdict))

    def add(self, name: str, *, registers: bool = True, id: str = "", **fields: object) -> Holder:
        about = {"lease": "", "host": name, "port": 1, "ttl_s": TTL_S, **fields}
        template = Instance(id=id or name, **about)  # type: ignore[arg-type]
        return Holder(self, name, template, registers)

    def until(self, condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        assert self.simulation.run_until_true(condition, within_s, 0.05), f"never: {what}"

    def run(self, seconds: float) -> None:
        self.simulation.run_for(seconds)

    def now(self) -> float:
        return self.simulation.time_s

    @property
    def seen(self) -> dict[str, Instance]:
        """The list as the watcher has it."""
        return self.watcher.heard[-1][1].by_id if self.watcher.heard else {}

    @property
    def protected(self) -> bool:
        return self.watcher.heard[-1][1].protected

    def healthy(self) -> list[str]:
        return sorted(id for id, one in self.seen.items() if one.healthy)

    def ask(self, request: Request) -> bytes:
        """One request by the watcher; what it came to."""
        answers: list[Answer | SwellError] = []
        self.watcher.call(request, answers.append)
        self.until(lambda: bool(answers), "an answer")
        (answer,) = answers
        assert isinstance(answer, Answer), answer
        return answer.body

    def listed(self) -> Instances:
        """The list as the cluster has it."""
        got = requests.got_of(self.ask(requests.get(SERVICE, INSTANCES)))
        return parse(got.data if got is not None and got.data is not None else b"")

    def primary(self, application: str = SERVICE) -> str:
        """The node that serves the service."""
        slot = place(application) % SETTINGS.store.slots
        for name in self.fleet.processes:
            node = self.fleet.node(name)
            if node is not None and node.store.served(slot, CONFIG_SERVICE) is not None:
                return name
        return ""
