"""A simulated cluster with containers and administrators, watched from all sides."""

from __future__ import annotations

from collections import Counter

from swell.config.delivery.delivery import Delivery
from swell.config.delivery.feeds import Feed
from swell.config.operations import CONFIG_SERVICE
from swell.events import Event, RelayAvoided
from swell.node import Node
from swell.settings import Settings
from swell.simulation.checkers.followers import Followers
from swell.simulation.checkers.publications import Outcome, Publications
from swell.simulation.checkers.versions import Chains, WatchedMachine
from swell.simulation.fleet import CLUSTER
from swell.simulation.malice import CLAIM, Malice
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.cluster import SHOWN_MAX, Cluster
from swell.simulation.workloads.config_administrators import Administrator
from swell.simulation.workloads.config_containers import Container, Manner
from swell.simulation.workloads.result import Result

LOOK_EVERY_S = 1.0
"""How often the containers, and what primaries believe of them, are looked at."""

HARM_MAX = 6
"""A relay that did harm so often, each time for long enough to be found, must have been reported:
two strikes are enough, but others who fail at the same time may take one of them from it."""


class ConfigFleet(Cluster):
    """Containers and administrators beside the nodes of a cluster."""

    def __init__(
        self,
        result: Result,
        simulation: Simulation,
        settings: Settings,
        voters: int,
        applications: tuple[str, ...],
        bugs: frozenset[str],
    ) -> None:
        super().__init__(result, simulation, settings, voters, bugs)
        self.applications = applications
        self.bugs = bugs
        self.chains = Chains(lambda: simulation.time_s)
        self.publications = Publications(self.chains)
        self.followers = Followers(self.chains)
        self.containers: dict[str, Container] = {}
        self.administrators: list[Administrator] = []
        self.avoided: dict[str, list[str]] = {}
        """Relay → why it was reported."""
        self._counters: list[Counter[str]] = []
        """Of all nodes, in all their lives."""
        self.fleet.on_start = self._watch
        simulation.on_event(self._on_event)

    def add_container(self, name: str, manner: Manner, malice: Malice | None) -> None:
        self.containers[name] = Container(
            self.simulation, name, manner, self.addresses, self.fleet.settings.config, self.bugs,
            self.followers, malice,
        )  # fmt: skip

    def add_administrator(self, site: str) -> None:
        number = len(self.administrators)
        self.administrators.append(
            Administrator(
                self.simulation,
                number,
                site,
                self.addresses,
                self.applications,
                self.publications,
                self.followers,
            )
        )

    # Watching.

    def _watch(self, node: Node) -> None:
        """Every machine of a node reports what it applies; its counters outlive it."""
        self._counters.append(node.counters)
        node.store.services[CONFIG_SERVICE] = lambda: WatchedMachine(self.chains, node.config.name)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, RelayAvoided):
            self.avoided.setdefault(event.relay, []).append(f"{time_s:.3f} {event.reason}")

    def deliveries(self) -> list[tuple[str, Delivery]]:
        """Of all nodes that run."""
        nodes = ((name, self.fleet.node(name)) for name in self.fleet.processes)
        return [(name, node.delivery) for name, node in nodes if node is not None]

    def served(self) -> list[tuple[str, Feed]]:
        """All feeds that nodes serve, and which."""
        return [
            (name, feed)
            for name, delivery in self.deliveries()
            for application in self.applications
            for feed in delivery.feeds.of(application)
        ]

    def relays(self) -> list[str]:
        """Containers that have others behind them at the moment."""
        found: dict[str, None] = {}
        for _, feed in self.served():
            for group in feed.groups.values():
                found.update({b.relay.name: None for b in group.branches() if b.digest})
        return list(found)

    def look(self) -> None:
        """Look at everything once, and again after a while."""
        for container in self.containers.values():
            session = container.session
            if session is not None and session.ready:
                self.followers.look(session)
        for name, feed in self.served():
            self.followers.look_at_table(name, feed)
        self.simulation.call_later(LOOK_EVERY_S, self.look)

    # Verdicts.

    def lacking(self) -> list[str]:
        """Containers that have not got the newest of all they follow."""
        found = []
        for container in self.containers.values():
            session = container.session
            if session is None or not session.ready:
                found.append(f"{container.name} does not run")
            else:
                lacks = self.followers.lacks(session)
                found += [f"{container.name} lacks the newest step of {one}" for one in lacks]
        return found

    def judge(self) -> None:
        """What all that was seen comes to."""
        problems = self.chains.violations + self.followers.violations
        problems += self.publications.problems() + self._relay_problems()
        self.result.problems = problems[:SHOWN_MAX] + self.result.problems

    def _relay_problems(self) -> list[str]:
        """Malice is reported, and nobody is taken for a liar who is none."""
        found = []
        liars = {
            (one.manner.owner, one.manner.site)
            for one in self.containers.values()
            if one.malice is not None and one.malice.deed == CLAIM
        }
        for container in self.containers.values():
            malice, reasons = container.malice, self.avoided.get(container.name, [])
            if malice is not None:
                if malice.harm >= HARM_MAX and not reasons:
                    found.append(
                        f"{container.name} did {malice.deed} {malice.harm} times, unreported"
                    )
            elif (container.manner.owner, container.manner.site) not in liars:
                found += [
                    f"{container.name} is honest and was reported: {reason}"
                    for reason in reasons
                    if not reason.endswith("did not deliver")
                ]
        return found

    def counts(self) -> dict[str, float]:
        containers = self.containers.values()
        publications = self.publications
        nodes: Counter[str] = Counter()
        for counters in self._counters:
            nodes.update(counters)
        return super().counts() | {
            "containers": len(containers),
            "publishes": publications.count(Outcome.ACKNOWLEDGED),
            "refused": publications.count(Outcome.REFUSED),
            "unknown": publications.count(Outcome.UNKNOWN),
            "reads": publications.reads,
            "answers": self.followers.answers,
            "deliveries": self.followers.updates,
            "relayed": sum(one.counter("relayed") for one in containers),
            "unasked": nodes["config-unasked"],
            "restarts": sum(one.restarts for one in containers),
            "mended": nodes["config-missed"]
            + sum(one.counter("held") + one.counter("repairs") for one in containers),
            "malicious": sum(one.malice is not None for one in containers),
            "avoided": sum(map(len, self.avoided.values())),
            "failed": nodes["config-failed"],
        }


def malice_of(deed: str, name: str, simulation: Simulation, share: float) -> Malice:
    return Malice(deed, simulation.rng(f"malice/{name}"), CLUSTER, share)
