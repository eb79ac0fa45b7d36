"""Patience with receipts follows the time they take (RIP-11): an honest tree that is slow is left
alone, a relay that has died without a word is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.config.delivery.patience import PRIMARY_WAIT, Patience
from swell.config.messages import deliver, read_deliver
from swell.container.session import ContainerSession
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session
from swell.settings import ConfigSettings
from swell.simulation.simulation import Simulation
from swell.store.messages import Table, TableRequest
from swell.world import Address, World
from tests.unit.config_toys import APPLICATION
from tests.unit.delivery_toys import CLUSTER, ME, SLOT, SLOTS, ToyFleet, ToyPrimary

TICK_S = 0.2
"""Sweeps, frames and links on top of a bound."""


def patience_of(fleet: ToyFleet, site: str = "a") -> Patience:
    """With the relays of a site."""
    return fleet.feed()._patience[APPLICATION, site, True]


def rounds(fleet: ToyFleet, count: int, each_s: float) -> int:
    """Publish and give everybody time; how many were sent something again."""
    before = fleet.counters["config-missed"]
    for number in range(count):
        fleet.put("a.json", b"%d" % number)
        fleet.run(each_s)
        for one in fleet.containers.values():
            one.renew()
    return fleet.counters["config-missed"] - before


# The time itself.


def test_the_time_is_that_of_the_receipts_and_four_deviations() -> None:
    patience = Patience(1.0, 60.0)
    assert patience.wait_s == 1.0
    patience.note(2.0)
    assert patience.wait_s == 2.0 + 4 * 1.0
    for _ in range(100):
        patience.note(2.0)
    assert 2.0 <= patience.wait_s < 2.1
    for _ in range(100):
        patience.note(0.001)
    assert patience.wait_s == 1.0


def test_what_is_late_doubles_the_time_once_for_all_until_something_is_in_time() -> None:
    patience = Patience(1.0, 60.0)
    for _ in range(3):
        patience.back_off(0.0, 2.0)
    assert patience.wait_s == 2.0
    patience.back_off(2.0, 6.0)
    assert patience.wait_s == 4.0
    patience.note(0.01)
    assert patience.wait_s == 1.0


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1e6)), max_size=40), st.floats(0.01, 20.0))
def test_the_time_stays_within_its_bounds(samples: list[float | None], low_s: float) -> None:
    patience = Patience(low_s, 8.0)
    for number, took_s in enumerate(samples):
        if took_s is None:
            patience.back_off(number, number)
        else:
            patience.note(took_s)
        assert low_s <= patience.wait_s <= max(low_s, 8.0)


def test_a_burst_with_a_list_says_how_long_to_wait() -> None:
    assert read_deliver(deliver(bytes(16), b"burst", 1.25)) == (bytes(16), b"burst", 1.25, True)
    assert read_deliver(deliver(b"", b"burst", 1.25)) == (b"", b"burst", 0.0, True)
    assert read_deliver(deliver(bytes(16), b"", 1e6))[2] == 65.535


# The primary.


@pytest.mark.parametrize("slow_s", [1.5, 3.0, 7.0])
def test_an_honest_tree_that_is_slow_is_soon_left_alone(slow_s: float) -> None:
    fleet = ToyFleet()
    made = fleet.build(8)
    for one in made:
        one.slow_s = slow_s
    rounds(fleet, 4, 4 * slow_s)
    assert rounds(fleet, 20, slow_s + 0.2) == 0
    assert fleet.behind() == []
    assert fleet.counters["config-relay-avoided"] == 0
    assert not any(fleet.member(one.name).container.direct_until for one in made)
    assert slow_s <= patience_of(fleet).wait_s <= fleet.settings.receipt_wait_s_max
    (relay,) = fleet.relays()
    assert fleet.containers[relay].told_wait_s == pytest.approx(patience_of(fleet).wait_s, rel=0.1)
    for one in made:
        one.slow_s = 0.0
    rounds(fleet, 60, 0.1)
    assert patience_of(fleet).wait_s == fleet.settings.receipt_wait_s


def test_a_silent_relay_among_slow_ones_is_found_in_time() -> None:
    fleet = ToyFleet()
    made = fleet.build(8)
    for one in made:
        one.slow_s = 2.5
    rounds(fleet, 12, 5.0)
    (relay,) = fleet.relays()
    wait_s = patience_of(fleet).wait_s
    fleet.containers[relay].slow_s = 0.0
    fleet.containers[relay].asleep = True
    fleet.put("a.json", b"999")
    fleet.run(PRIMARY_WAIT * wait_s - TICK_S)
    assert fleet.counters["config-relay-strike"] == 0
    fleet.run(2.5 + 2 * TICK_S)
    assert fleet.behind() == [relay]
    assert fleet.counters["config-relay-strike"] == 1
    assert PRIMARY_WAIT * wait_s < PRIMARY_WAIT * fleet.settings.receipt_wait_s_max


def test_a_relay_that_delays_among_quick_ones_makes_nobody_patient() -> None:
    fleet = ToyFleet(relay_fanout=4)
    made = fleet.build(20)
    made[0].slow_s = 4.0
    rounds(fleet, 3, 6.0)
    assert fleet.status()["c000"].avoided
    assert fleet.counters["config-relay-avoided"] == 1
    assert patience_of(fleet).wait_s == fleet.settings.receipt_wait_s


def test_a_slow_site_costs_no_other_its_patience() -> None:
    fleet = ToyFleet()
    far = fleet.add(*(f"f{n}" for n in range(4)), site="far")
    fleet.build(6)
    for one in far:
        one.slow_s = 5.0
    rounds(fleet, 6, 15.0)
    assert patience_of(fleet, "far").wait_s >= 5.0
    assert patience_of(fleet).wait_s == fleet.settings.receipt_wait_s


def test_a_stalled_node_reads_before_it_judges() -> None:
    fleet = ToyFleet()
    fleet.build(6)
    primary = fleet.simulation.processes["n1"]
    fleet.put("a.json", b"2")
    fleet.run(0.0)
    primary.pause()
    fleet.run(5.0)
    primary.resume()
    fleet.run(1.0)
    assert fleet.behind() == []
    assert fleet.counters["config-missed"] == 0


# The whole tree.


class FarFleet(ToyFleet):
    """Real containers at a site whose machines answer each other slowly."""

    def __init__(self, containers: int, apart_s: float, far_s: float) -> None:
        super().__init__(relay_fanout=2, server_fanout=1, receipt_wait_s=0.3)
        self.simulation = Simulation(1, latency=lambda a, b: apart_s if a == b else far_s)
        self.sessions: dict[str, ContainerSession] = {}

        def primary(world: World) -> ToyPrimary:
            self.primary = ToyPrimary(world, self.store, self.settings, ())
            handle = self.primary.sessions.handle
            handle(TableRequest, self._on_table_request, (LinkKind.CLIENT,))
            return self.primary

        self.simulation.add("n1", "a", primary).start()
        for number in range(containers):
            self._add(f"c{number}")
        self.run(30.0)

    def _on_table_request(self, session: Session, request: TableRequest) -> None:
        session.send(Table(request.number, (ME.id,) * SLOTS, (ME,), 1))

    def _add(self, name: str) -> None:
        def container(world: World) -> ContainerSession:
            settings = ConfigSettings(repair_s=30.0, renew_s=60.0)
            about = name, APPLICATION, "b", settings, Address(name, 0)
            made = ContainerSession(world, CLUSTER, [Address("n1", 0)], *about)
            made.subscribe(APPLICATION)
            self.sessions[name] = made
            return made

        self.simulation.add(name, "b", container).start()

    def behind(self) -> list[str]:
        feeds = {n: next(iter(s.attaching.all.values())).feed for n, s in self.sessions.items()}
        return [name for name, feed in feeds.items() if feed.at < self.step]


def test_relays_behind_relays_wait_as_long_as_it_takes() -> None:
    fleet = FarFleet(7, apart_s=0.2, far_s=0.4)
    assert len(fleet.feed().members) == 7
    rounds(fleet, 12, 12.0)
    assert rounds(fleet, 12, 8.0) == 0
    assert fleet.behind() == []
    (tree,) = [b for g in fleet.feed().groups.values() for b in g.branches()]
    assert len(tree.lists) > 1  # three levels
    assert fleet.counters["config-relay-avoided"] == 0
    wait_s = patience_of(fleet, "b").wait_s
    assert wait_s > fleet.settings.receipt_wait_s
    relay = tree.relay.name
    fleet.simulation.processes[relay].pause()
    fleet.put("a.json", b"999")
    fleet.run(PRIMARY_WAIT * wait_s + 8.0)
    assert fleet.behind() == [relay]
    assert fleet.delivery.feeds.serves(SLOT)
