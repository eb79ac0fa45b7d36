"""Fail-over in a simulated cluster: containers that died with their primary, or before it, are
named by the next one (RIP-3, RIP-11)."""

from __future__ import annotations

from swell.config.delivery.rosters import TELL_S
from swell.config.names import place
from swell.config.reports import REPORT_SERVICE, State, StatusOf, encode, status_of
from swell.settings import ConfigSettings, OverlaySettings, Settings, StoreSettings
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.config_containers import Manner
from swell.simulation.workloads.config_fleet import ConfigFleet
from swell.simulation.workloads.result import Result
from swell.store.messages import Execute, Read, Status

APPLICATION = "shop"
SLOTS = 8
SLOT = place(APPLICATION) % SLOTS


def formed(offline_s: float) -> ConfigFleet:
    """Six nodes, eight containers."""
    settings = Settings(
        overlay=OverlaySettings(connections=6, report_interval_s=1.0),
        store=StoreSettings(slots=SLOTS, beat_interval_s=0.4),
        config=ConfigSettings(offline_s=offline_s, renew_s=1.0),
    )
    simulation = Simulation(1)
    fleet = ConfigFleet(Result("config", 1), simulation, settings, 3, (APPLICATION,), frozenset())
    fleet.add_nodes(6, 2)
    for number in range(8):
        manner = Manner(APPLICATION, f"s{number % 2}", ((APPLICATION, ()),), keeps=False)
        fleet.add_container(f"c{number}", manner, None)
    assert fleet.form()
    for container in fleet.containers.values():
        container.process.start()
    assert simulation.run_until_true(lambda: len(rows(fleet)) == 8, 20.0, 0.1)
    return fleet


def primary(fleet: ConfigFleet) -> str:
    return next((name for name, one in fleet.deliveries() if one.feeds.serves(SLOT)), "")


def rows(fleet: ConfigFleet) -> dict[str, State]:
    """As the primary says."""
    name, got = primary(fleet), {}
    node = fleet.fleet.node(name) if name else None
    if node is None:
        return {}

    def done(status: Status, body: bytes) -> None:
        assert status is Status.DONE
        got.update({row.container: State(row.state) for row in status_of(body).rows})

    body = encode(StatusOf(APPLICATION))
    request = Execute(0, 1, 0, SLOT, REPORT_SERVICE, Read.LINEARIZABLE, body, 5.0)
    node.delivery.execute(request, done)
    return got


def test_the_next_primary_names_who_does_not_come_back() -> None:
    fleet = formed(offline_s=30.0)
    simulation = fleet.simulation
    simulation.run_for(2 * TELL_S)
    fleet.containers["c3"].process.crash()
    simulation.run_for(2 * TELL_S)
    old = primary(fleet)
    fleet.containers["c5"].process.crash()
    simulation.processes[old].crash()
    assert simulation.run_until_true(lambda: primary(fleet) not in ("", old), 20.0, 0.1)
    dead = {"c3": State.OFFLINE, "c5": State.OFFLINE}

    def all_are_named() -> bool:
        found = rows(fleet)
        offline = {name: state for name, state in found.items() if state is State.OFFLINE}
        return len(found) == 8 and offline == dead

    assert simulation.run_until_true(all_are_named, 10.0, 0.1)
    fleet.containers["c3"].process.start()
    assert simulation.run_until_true(lambda: rows(fleet)["c3"] is not State.OFFLINE, 10.0, 0.1)
    simulation.run_for(31.0)
    assert sorted(rows(fleet)) == ["c0", "c1", "c2", "c3", "c4", "c6", "c7"]
