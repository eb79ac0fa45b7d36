"""Writes down what is stored: one record for every version, once it is committed (PIP-1).

A listener of the store. Versions come from the newest steps that every application keeps, so what
was committed by an earlier primary has records too: whoever takes over repeats the steps of the
last moments, which the one before may not have brought to a file. A version may then have several
records; they are equal in everything but who wrote them, when and why.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from swell.config.application import Application
from swell.config.bursts import Change
from swell.config.machine import ConfigMachine
from swell.config.operations import CONFIG_SERVICE
from swell.events.records import Stored
from swell.store.state import Machine
from swell.world import World

REPEATED_US = 120_000_000
"""How old a version may be that a new primary repeats: twice the age of a complete file."""

TAKEN_OVER = "taken over"


class Slots(Protocol):
    """What it needs of the store."""

    def served(self, slot: int, service: int) -> Machine | None: ...

    def epoch(self, slot: int) -> int: ...


class Storing:
    """Of one node. Does nothing where nobody records."""

    def __init__(self, world: World, slots: Slots) -> None:
        self._world = world
        self._slots = slots
        self._seen: dict[int, int] = {}
        """Changes of a slot's machine that were looked at."""
        self._steps: dict[str, int] = {}
        """The last step of each application that is written down, or came before."""

    def on_serving(self, slot: int) -> None:
        machine = self._machine(slot)
        if machine is None:
            return
        epoch, since_us = self._slots.epoch(slot), self._world.wall_us() - REPEATED_US
        for application in machine.applications():
            first = application.step
            while first > 0 and _is_since(application, first, since_us):
                first -= 1
            self._write(application, first, epoch, TAKEN_OVER)
        self._seen[slot] = machine.changes

    def on_committed(self, slot: int) -> None:
        machine = self._machine(slot)
        if machine is None or slot not in self._seen:
            return
        seen, self._seen[slot] = self._seen[slot], machine.changes
        epoch = self._slots.epoch(slot)
        for name in islice(reversed(machine.changed), machine.changes - seen):
            application = machine.application(name)
            if application is not None and application.step > self._steps.get(name, 0):
                self._write(application, self._steps.get(name, 0), epoch, None)

    def on_stopped(self, slot: int) -> None:
        self._seen.pop(slot, None)

    def _machine(self, slot: int) -> ConfigMachine | None:
        if not self._world.recording:
            return None
        machine = self._slots.served(slot, CONFIG_SERVICE)
        return machine if isinstance(machine, ConfigMachine) else None

    def _write(self, application: Application, after: int, epoch: int, reason: str | None) -> None:
        """The versions of all steps behind one, as far as they are kept."""
        for step in range(after + 1, application.step + 1):
            for change in application.changes_at(step) or ():
                self._write_version(application, change, step, epoch, reason)
        self._steps[application.name] = application.step

    def _write_version(
        self, application: Application, change: Change, step: int, epoch: int, reason: str | None
    ) -> None:
        configuration = application.configurations.get(change.name)
        if configuration is None:
            return
        past = configuration.history.find(change.version)
        made = configuration if past is None else past
        self._world.emit(
            Stored(
                application.name, change.name, change.version, step, change.id, change.base,
                made.author or None, epoch, change.length, made.wall_us, reason,
            )
        )  # fmt: skip


def _is_since(application: Application, step: int, since_us: int) -> bool:
    """Whether a step is kept and younger than an instant."""
    changes = application.changes_at(step)
    if not changes:
        return False
    configuration = application.configurations.get(changes[0].name)
    past = None if configuration is None else configuration.history.find(changes[0].version)
    return past is not None and past.wall_us >= since_us
