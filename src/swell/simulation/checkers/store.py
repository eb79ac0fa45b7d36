"""What must be true of the replicated store, seen from outside: by its events and its replicas.

`ServiceChecker` follows every run: at most one node serves a slot in an epoch, and at most one
voter leads the directory in a term. The others look at a moment: is every slot whole
(`weaknesses`), where the plan wants it (`departures`), and the same at all members (`differences`)?
"""

from __future__ import annotations

from collections import Counter

from swell.directory.plan import PLAN, decode_plan
from swell.directory.raft.events import LeaderElected
from swell.directory.registry import Registry
from swell.events import Event, SlotServed
from swell.simulation.fleet import Fleet
from swell.simulation.simulation import Simulation
from swell.store import record as records
from swell.store.record import Record
from swell.store.replica import Replica


class ServiceChecker:
    """Who served which slot in which epoch."""

    def __init__(self, simulation: Simulation) -> None:
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        self._server: dict[tuple[int, int], str] = {}
        self._leader: dict[int, str] = {}
        self._last: dict[int, tuple[int, str]] = {}
        simulation.on_event(self._on_event)

    def _on_event(self, time_s: float, process: str, event: Event) -> None:
        if isinstance(event, LeaderElected):
            self._on_leader(time_s, process, event.term)
        if not isinstance(event, SlotServed):
            return
        key = (event.slot, event.epoch)
        known = self._server.setdefault(key, process)
        if known != process:
            self.violations.append(
                f"{time_s:.3f} slot {event.slot} is served in epoch {event.epoch} by {process} and "
                f"by {known}"
            )
        epoch, server = self._last.get(event.slot, (0, process))
        if event.epoch < epoch:
            return  # news that reached its node late: nobody follows it any more
        self._last[event.slot] = (event.epoch, process)
        self.seen["activations"] += event.epoch > epoch
        self.seen["failovers"] += server != process

    def _on_leader(self, time_s: float, process: str, term: int) -> None:
        self.seen["leaders"] += 1
        known = self._leader.setdefault(term, process)
        if known != process:
            self.violations.append(f"{time_s:.3f} {process} and {known} both lead in term {term}")


def _registry(fleet: Fleet) -> Registry:
    """As the voter knows it that has applied most."""
    nodes = [node for name in fleet.voters if (node := fleet.node(name)) is not None]
    registries = [node.service.state.registry for node in nodes if node.service is not None]
    return max(registries, key=lambda registry: registry.revision, default=Registry())


def slot_records(fleet: Fleet) -> dict[int, Record]:
    entries = _registry(fleet).read("slots/").values()
    found = [records.decode(entry.value) for entry in entries]
    return {record.slot: record for record in found}


def departures(fleet: Fleet) -> list[str]:
    """Where the slots are not as the plan wants them, order of members and primary included."""
    entry = _registry(fleet).get(PLAN)
    if entry is None:
        return ["there is no plan"]
    plan = decode_plan(entry.value)
    known = slot_records(fleet)
    planned = sorted(contact.id for contact in plan.contacts)
    living = sorted(overlay.me.id for overlay in fleet.living())
    found = [f"the plan is for {planned}, there are {living}"] if planned != living else []
    for slot, nodes in enumerate(plan.targets):
        record = known.get(slot)
        if record is None or record.primary != nodes[0] or set(record.nodes) != set(nodes):
            found.append(f"slot {slot} should be at {nodes}, but is {record}")
    return found


def replicas(fleet: Fleet, record: Record) -> dict[int, Replica]:
    """Node → replica, of the running members of a slot."""
    found: dict[int, Replica] = {}
    for name in fleet.processes:
        node = fleet.node(name)
        if node is None or node.overlay is None or node.store is None:
            continue
        replica = node.store.replicas.get(record.slot)
        if replica is not None and node.overlay.me.id in record.nodes:
            found[node.overlay.me.id] = replica
    return found


def weaknesses(fleet: Fleet) -> list[str]:
    """What keeps slots from being at full strength; empty: any one copy of each may be lost."""
    settings = fleet.settings.store
    known = slot_records(fleet)
    missing = [slot for slot in range(settings.slots) if slot not in known]
    found = [f"slot {slot} has no record" for slot in missing]
    wanted = min(settings.replicas, len(fleet.living()))
    for record in known.values():
        if not record.activated or len(record.members) < wanted:
            found.append(f"slot {record.slot} is {record}")
            continue
        members = replicas(fleet, record)
        for node in record.nodes:
            replica = members.get(node)
            if replica is None:
                found.append(f"slot {record.slot}: member {node} is away")
            elif replica.fence != record.epoch:
                found.append(f"slot {record.slot}: member {node} is at epoch {replica.fence}")
            elif not (replica.primary is not None or replica.confirmed):
                found.append(f"slot {record.slot}: member {node} is not confirmed")
    return found


def differences(fleet: Fleet) -> list[str]:
    """Slots whose members' logs or states are not alike."""
    found: list[str] = []
    for record in slot_records(fleet).values():
        members = replicas(fleet, record)
        states = {
            node: (replica.commit, replica.chain.last, replica.chain.digest, replica.state.dump())
            for node, replica in members.items()
        }
        if len(set(states.values())) > 1:
            shown = {node: state[:2] for node, state in states.items()}
            found.append(f"slot {record.slot} differs between its members: {shown}")
    return found
