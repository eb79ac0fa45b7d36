"""The planner: the directory's leader keeps the plan in step with the view.

It looks at the state every quarter of a second, and when nodes have come, gone or started again,
or pins were changed, it plans anew: once that has been quiet for a second, after three seconds at
most. Placing the slots takes a good part of a second in a large cluster, so it is done off the
loop. A plan that says nothing new is not written, so the log stays short. The plan is compared
and set like everything in the registry: two leaders cannot overwrite each other.

The number of slots and of replicas is what the settings said when the first plan was written, and
never changes afterwards. While fewer nodes than `min_replicas` are up, targets stay as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from swell.directory.placement import place, slot_key
from swell.directory.plan import (
    PINS,
    PLAN,
    SLOTS_MAX,
    Plan,
    Targets,
    decode_pin,
    decode_plan,
    encode_plan,
)
from swell.directory.records import State
from swell.directory.registry import VALUE_BYTES_MAX, Change, Outcome
from swell.errors import UnavailableError, WireError
from swell.overlay.contact import Contact
from swell.rings import TwoLevelRing
from swell.settings import OverlaySettings, StoreSettings
from swell.world import Timer, World

SLICE_SIZE = 1
"""Nodes per zone slice. Routing takes coarser ones; here a zone of four that gets a fifth node, and
with it a second slice, would draw a quarter of all slots at once."""

LOOK_S = 0.25
QUIET_S = 1.0
DELAY_S_MAX = 3.0
CONTACTS_ALL_MAX = 512
"""Up to so many nodes the plan has the contacts of all; beyond, of those it names."""

Commit = Callable[[Sequence[Change], Callable[[list[Outcome] | None], None]], None]
Mark = tuple[int, tuple[int, ...]]
"""What a plan was made from: the view's epoch, and the versions of the plan and of all pins."""


class Task(NamedTuple):
    """What targets are computed from."""

    draft: Plan
    zones: Mapping[int, Sequence[int]]
    pins: Mapping[int, tuple[int, ...]]
    ring_points: int


class Planner:
    """Runs while this voter leads."""

    def __init__(
        self,
        world: World,
        overlay: OverlaySettings,
        settings: StoreSettings,
        state: State,
        change: Commit,
        counters: Counter[str],
    ) -> None:
        assert 0 <= settings.slots <= SLOTS_MAX
        assert 1 <= settings.min_replicas <= settings.replicas
        self._world = world
        self._overlay = overlay
        self._settings = settings
        self._state = state
        self._change = change
        self._counters = counters
        self._timer: Timer | None = None
        self._term = 0
        self._writing = False
        self._seen: Mark | None = None
        self._seen_at = 0.0
        self._planned: Mark | None = None
        self._overdue_at: float | None = None

    def start(self) -> None:
        self._term += 1
        self._writing = False
        self._seen = self._planned = self._overdue_at = None
        if self._settings.slots:
            self._look_later()

    def stop(self) -> None:
        self._term += 1
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._world.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._look_later()
        mark = self._mark()
        if self._writing or mark == self._planned:
            return
        now = self._world.now()
        if self._overdue_at is None:
            self._overdue_at = now + DELAY_S_MAX
        if mark != self._seen:
            self._seen, self._seen_at = mark, now
        if now >= self._seen_at + QUIET_S or now >= self._overdue_at:
            self._overdue_at = None
            self._planned = mark
            self._write()

    def _mark(self) -> Mark:
        registry = self._state.registry
        entries = (registry.get(PLAN), *registry.read(PINS).values())
        return self._state.epoch, tuple(entry.version if entry else 0 for entry in entries)

    def _write(self) -> None:
        """Begin to make the plan of now, unless that cannot be done yet."""
        entry = self._state.registry.get(PLAN)
        try:
            old = None if entry is None else decode_plan(entry.value)
        except WireError as error:
            self._counters[f"planner-{error.reason}"] += 1
            return
        up = {e.contact.id: e.contact for e in self._state.nodes.values() if e.up}
        settings = self._settings
        draft = old or Plan(
            0, settings.slots, settings.replicas, settings.min_replicas, (), ()
        )  # fmt: skip
        draft = msgspec.structs.replace(draft, view_epoch=self._state.epoch)
        expected = 0 if entry is None else entry.version
        if len(up) >= draft.min_replicas:
            self._writing = True
            term = self._term
            task = Task(draft, _zones(up), self._pins(), self._overlay.ring_points)

            def placed(targets: Targets | Exception) -> None:
                if term == self._term:
                    self._on_placed(targets, draft, up, old, expected)

            self._world.offload(targets_of, task, placed)
        elif old is not None:
            self._compare(old.targets, draft, up, old, expected)

    def _on_placed(
        self,
        targets: Targets | Exception,
        draft: Plan,
        up: Mapping[int, Contact],
        old: Plan | None,
        expected: int,
    ) -> None:
        self._writing = False
        if isinstance(targets, UnavailableError):
            self._planned = None  # look again
        elif isinstance(targets, Exception):
            raise targets
        else:
            self._compare(targets, draft, up, old, expected)

    def _compare(
        self,
        targets: Targets,
        draft: Plan,
        up: Mapping[int, Contact],
        old: Plan | None,
        expected: int,
    ) -> None:
        """Write the plan if it differs from the one there is."""
        plan = msgspec.structs.replace(draft, targets=targets, contacts=_contacts(up, targets))
        if old is not None and (plan.targets, plan.contacts) == (old.targets, old.contacts):
            return
        value = encode_plan(plan)
        if len(value) > VALUE_BYTES_MAX:
            self._counters["planner-too-large"] += 1
            return
        self._writing = True
        term = self._term

        def written(outcomes: list[Outcome] | None) -> None:
            if term == self._term:
                self._writing = False
                if outcomes is not None and outcomes[0].accepted:
                    self._counters["planner-written"] += 1
                else:
                    self._planned = None  # look again

        self._change([Change(PLAN, expected, value)], written)

    def _pins(self) -> dict[int, tuple[int, ...]]:
        pins: dict[int, tuple[int, ...]] = {}
        for key, entry in self._state.registry.read(PINS).items():
            try:
                slot, nodes = decode_pin(key, entry.value)
                pins[slot] = nodes
            except WireError:
                self._counters["planner-bad-pin"] += 1
        return pins


def targets_of(task: Task) -> Targets:
    """Pure: the nodes of every slot, by the ring and the pins."""
    draft, zones = task.draft, task.zones
    ring = TwoLevelRing(zones, SLICE_SIZE, task.ring_points)
    targets = [place(slot_key(slot), zones, draft.replicas, ring) for slot in range(draft.slots)]
    up = {node for members in zones.values() for node in members}
    for slot, nodes in task.pins.items():
        pinned = [node for node in dict.fromkeys(nodes) if node in up]
        if pinned and slot < draft.slots:
            # Too few would never serve: the ring helps out.
            spare = [node for node in targets[slot] if node not in pinned]
            targets[slot] = (*pinned, *spare[: max(0, draft.min_replicas - len(pinned))])
    return tuple(targets)


def _zones(up: Mapping[int, Contact]) -> dict[int, list[int]]:
    zones: dict[int, list[int]] = {}
    for node in sorted(up):
        zones.setdefault(up[node].zone, []).append(node)
    return zones


def _contacts(up: Mapping[int, Contact], targets: Targets) -> tuple[Contact, ...]:
    if len(up) <= CONTACTS_ALL_MAX:
        return tuple(up[node] for node in sorted(up))
    named = {node for nodes in targets for node in nodes}
    return tuple(up[node] for node in sorted(named & up.keys()))
