"""Nodes follow recommended settings that the cluster holds as a configuration (PIP-6)."""

from __future__ import annotations

import json

from swell.config import requests
from swell.config.edits import Delete, Edit, Whole
from swell.config.thresholds import APPLICATION, NAME, RETRY_S
from swell.events import Event, ThresholdIgnored
from swell.settings import ConfigSettings
from tests.simulation.services import SETTINGS, Cluster

OWN = SETTINGS.config
WITHIN_S = OWN.follow_s + 2 * RETRY_S


class Followers(Cluster):
    """Four nodes, and what they work with."""

    def __init__(self, seed: int = 1) -> None:
        self.ignored: dict[str, list[str]] = {}
        super().__init__(seed)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, ThresholdIgnored):
            self.ignored.setdefault(process, []).append(event.name)

    def put(self, edit: Edit) -> None:
        self.ask(requests.publish(APPLICATION, [edit]))

    def recommend(self, **settings: object) -> None:
        document = {"settings": {f"config.{name}": value for name, value in settings.items()}}
        self.put(Whole(NAME, json.dumps(document).encode()))

    def in_use(self) -> list[ConfigSettings]:
        """Of every node that lives, wherever it needs them."""
        nodes = [self.fleet.node(name) for name in self.fleet.processes]
        living = [node for node in nodes if node is not None]
        return [
            settings
            for node in living
            for settings in (node.delivery.settings, node.publishing.settings)
        ]

    def until_all(self, what: str, **settings: object) -> None:
        def followed() -> bool:
            return all(
                getattr(used, name) == value
                for used in self.in_use()
                for name, value in settings.items()
            )

        self.until(followed, what, WITHIN_S)


def test_pip6_every_node_follows_changes_and_goes_back_to_its_own() -> None:
    cluster = Followers()
    assert cluster.in_use() == [OWN] * 8
    cluster.recommend(relay_fanout=7, server_fanout=9, relaying=False, burst_bytes_max=65536)
    cluster.until_all(
        "all follow", relay_fanout=7, server_fanout=9, relaying=False, burst_bytes_max=65536
    )
    assert all(used.keep_versions == OWN.keep_versions for used in cluster.in_use())
    cluster.recommend(keep_versions=5)
    cluster.until_all("what is not named is their own", relay_fanout=OWN.relay_fanout)
    assert all(used.keep_versions == 5 for used in cluster.in_use())
    cluster.put(Delete(NAME))
    cluster.until(lambda: cluster.in_use() == [OWN] * 8, "their own again", WITHIN_S)
    assert cluster.ignored == {}


def test_pip6_bad_values_are_named_and_the_good_ones_hold() -> None:
    cluster = Followers()
    bad = {
        "relay_fanout": 1,
        "server_fanout": "many",
        "keep_versions": True,
        "retries": 99,
        "relaying": 1,
    }
    cluster.recommend(**bad, burst_bytes_max=1 << 20)
    cluster.until_all("the good one", burst_bytes_max=1 << 20)
    assert [used.relay_fanout for used in cluster.in_use()] == [OWN.relay_fanout] * 8
    named = [f"config.{name}" for name in bad]
    assert cluster.ignored == dict.fromkeys(cluster.fleet.processes, named)
    cluster.ignored.clear()
    for text in (b"[]", b'{"settings": 1}', b'{"settings": {}, "load": "%b"}' % (b"x" * 70_000)):
        cluster.put(Whole(NAME, text))
        cluster.until(lambda: len(cluster.ignored) == 4, "all name it", WITHIN_S)
        assert list(cluster.ignored.values()) == [[NAME]] * 4
        assert cluster.in_use() == [OWN] * 8
        cluster.ignored.clear()


def test_pip6_what_was_followed_holds_while_the_primary_is_away() -> None:
    cluster = Followers()
    cluster.recommend(relay_fanout=7)
    cluster.until_all("all follow", relay_fanout=7)
    primary = cluster.primary(APPLICATION)
    cluster.simulation.processes[primary].crash()
    cluster.run(2.0)
    cluster.until_all("nobody fell back", relay_fanout=7)
    cluster.simulation.processes[primary].start()
    cluster.until(lambda: len(cluster.in_use()) == 8, "it is back")
    cluster.until_all("whoever starts follows too", relay_fanout=7)
