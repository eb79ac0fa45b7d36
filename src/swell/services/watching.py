"""The services of the slots that a node serves: their lists, and a subject per checked instance.

Lists are read from the machine as they are committed, and only those that have changed.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

from swell.config.machine import ConfigMachine
from swell.config.names import INSTANCES, place
from swell.config.operations import CONFIG_SERVICE
from swell.services.instances import EMPTY, NONE, Instance, Instances, following
from swell.services.subjects import Subject
from swell.settings import ServiceSettings
from swell.store.state import Machine


class Slots(Protocol):
    """What is needed of the store (`swell.store.service.Store`)."""

    @property
    def slots(self) -> int: ...

    def served(self, slot: int, service: int) -> Machine | None: ...


class Service:
    """One service at its primary."""

    __slots__ = ("instances", "name", "news", "protect", "publishing", "slot", "subjects")

    def __init__(self, name: str, slot: int) -> None:
        self.name = name
        self.slot = slot
        self.instances: Instances = EMPTY
        self.protect = 0.0
        self.subjects: dict[str, Subject] = {}
        """By id, of the instances that are checked."""
        self.news: dict[str, Subject] = {}
        """Those that the list does not follow yet."""
        self.publishing = False

    def note(self, subject: Subject) -> None:
        """Something was found out about a subject."""
        if subject.is_news:
            self.news[subject.instance.id] = subject
        else:
            self.news.pop(subject.instance.id, None)

    def drop(self, id: str) -> None:
        subject = self.subjects.pop(id, None)
        self.news.pop(id, None)
        if subject is not None:
            subject.watched = False


class Slot:
    """One slot that is served here; `seen`: changes of its machine's services."""

    __slots__ = ("seen", "services")

    def __init__(self) -> None:
        self.seen = -1
        self.services: dict[str, Service] = {}


class Watching:
    """All services of one node."""

    def __init__(self, store: Slots, settings: ServiceSettings) -> None:
        self._store = store
        self._settings = settings
        self._slots: dict[int, Slot] = {}

    def begin(self, slot: int) -> None:
        self._slots[slot] = Slot()

    def end(self, slot: int) -> None:
        """Another node serves it from now on."""
        for service in self._slots.pop(slot, Slot()).services.values():
            for id in list(service.subjects):
                service.drop(id)

    def slot_of(self, service: str) -> int:
        """-1 if it is not served here."""
        slots = self._store.slots
        slot = place(service) % slots if slots else -1
        return slot if slot in self._slots else -1

    def find(self, slot: int, name: str) -> Service | None:
        known = self._slots.get(slot)
        return known.services.get(name) if known is not None else None

    def is_behind(self, slot: int) -> bool:
        """Whether services of a slot have changed since it was looked at."""
        known = self._slots.get(slot)
        machine = self._machine(slot) if known is not None else None
        return machine is not None and known is not None and known.seen != machine.service_changes

    def _machine(self, slot: int) -> ConfigMachine | None:
        machine = self._store.served(slot, CONFIG_SERVICE)
        return machine if isinstance(machine, ConfigMachine) else None

    def refresh(self, slot: int, now: float) -> tuple[list[Service], list[Subject]]:
        """Look at what has changed: those services, and the subjects that are new."""
        machine, known = self._machine(slot), self._slots.get(slot)
        if machine is None or known is None or known.seen == machine.service_changes:
            return [], []
        changes = machine.service_changes - known.seen
        if known.seen < 0:
            changes = len(machine.services)
        known.seen = machine.service_changes
        services: list[Service] = []
        subjects: list[Subject] = []
        for name in list(islice(reversed(machine.services), changes)):
            service = known.services.get(name)
            if service is None:
                service = known.services[name] = Service(name, slot)
            subjects += self._look(service, machine, now)
            services.append(service)
            if not service.instances.document and not service.publishing:
                del known.services[name]
        return services, subjects

    def _look(self, service: Service, machine: ConfigMachine, now: float) -> list[Subject]:
        application = machine.application(service.name)
        assert application is not None
        content = application.present(INSTANCES).content
        document = content.bytes() if content is not None else b""
        service.protect = application.options.protect
        service.instances, change = following(service.instances, document)
        for instance in change.removed:
            service.drop(instance.id)
        new = [self._add(service, instance, now) for instance in change.added]
        for instance in change.changed:
            subject = service.subjects.get(instance.id)
            if subject is not None and _is_same(subject.instance, instance):
                subject.instance = instance
                service.note(subject)
            else:
                service.drop(instance.id)
                new.append(self._add(service, instance, now))
        return [subject for subject in new if subject is not None]

    def _add(self, service: Service, instance: Instance, now: float) -> Subject | None:
        if instance.check == NONE:
            return None
        subject = Subject(service, instance, self._settings, now)
        service.subjects[instance.id] = subject
        return subject


def _is_same(old: Instance, new: Instance) -> bool:
    """Whether what was found out about an instance holds for what it is now."""
    return (old.lease, old.check, old.ttl_s, old.host, old.port) == (
        new.lease, new.check, new.ttl_s, new.host, new.port,
    )  # fmt: skip
