"""The chain of every configuration: what each version is, as every replica has ever made it.

One digest per (application, name, version) anywhere, ever; steps without gaps; every version made
from the one before it; nobody's publication in two steps. All replicas' machines report what they
apply (`WatchedMachine`), each report costs the changes of one step. What containers and clients
show is compared with these chains. Order is per application; it does not compose across them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from swell.config import operations as ops
from swell.config.configuration import Configuration
from swell.config.machine import ConfigMachine
from swell.config.operations import Operation
from swell.config.requests import published_of
from swell.config.versions import NO_VERSION


class Version(NamedTuple):
    """What a version is. `data` is None of a deletion."""

    version: int
    id: bytes
    base: bytes
    step: int
    data: bytes | None

    def __str__(self) -> str:
        size = "deleted" if self.data is None else f"{len(self.data)} bytes"
        return f"version {self.version} {self.id.hex()[:8]} of step {self.step}, {size}"


class Step(NamedTuple):
    author: str
    names: tuple[str, ...]


class Chains:
    """All applications. `now` is for saying when."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.violations: list[str] = []
        self.authors: dict[str, tuple[str, int]] = {}
        """Who made a step, every author one only."""
        self._steps: dict[str, list[Step]] = {}
        self._versions: dict[str, dict[str, list[Version]]] = {}
        """Application → name → versions from the first."""

    # Looking up.

    def step(self, application: str) -> int:
        """The newest step."""
        return len(self._steps.get(application, ()))

    def names_in(self, application: str, step: int) -> tuple[str, ...]:
        """What a step changed."""
        return self._steps[application][step - 1].names

    def names(self, application: str) -> Iterator[str]:
        return iter(self._versions.get(application, ()))

    def find(self, application: str, name: str, version: int) -> Version | None:
        versions = self._versions.get(application, {}).get(name, [])
        return versions[version - 1] if 0 < version <= len(versions) else None

    def version_at(self, application: str, name: str, step: int) -> int:
        """The version of a configuration after a step; 0 for none."""
        versions = self._versions.get(application, {}).get(name, [])
        return bisect_right(versions, step, key=lambda one: one.step)

    # What replicas make.

    def on_step(self, where: str, machine: ConfigMachine, step: ops.Step, number: int) -> None:
        """A replica has applied a step that changed something."""
        application = machine.application(step.application)
        assert application is not None
        made = [one for one in application.configurations.values() if one.step == number]
        known = self._steps.setdefault(step.application, [])
        row = Step(step.author, tuple(sorted(one.name for one in made)))
        if number > len(known) + 1:
            self._complain(where, f"{step.application} goes from step {len(known)} to {number}")
            return
        if number > len(known):
            known.append(row)
            self._on_author(where, step.application, number, step.author)
        elif known[number - 1] != row:
            self._complain(
                where, f"step {number} of {step.application} is {row}, and {known[number - 1]}"
            )
        for configuration in made:
            self.on_version(where, step.application, configuration)

    def _on_author(self, where: str, application: str, step: int, author: str) -> None:
        if author in self.authors:
            self._complain(
                where, f"{author} made step {step} of {application} and {self.authors[author]}"
            )
        self.authors[author] = application, step

    def on_version(self, where: str, application: str, configuration: Configuration) -> None:
        """A replica has this, by applying a step or from somebody else's state."""
        present, name = configuration.present, configuration.name
        content = present.content
        data = content.bytes() if content is not None else None
        made = Version(present.version, present.id, configuration.base, configuration.step, data)
        versions = self._versions.setdefault(application, {}).setdefault(name, [])
        if made.version <= len(versions):
            if versions[made.version - 1] != made:
                self._complain(
                    where, f"{application}/{name} is {made}, and {versions[made.version - 1]}"
                )
            return
        before = versions[-1].id if versions else NO_VERSION
        if made.version != len(versions) + 1 or made.base != before:
            self._complain(where, f"{application}/{name}: {made} was not made from the one before")
            return
        versions.append(made)

    def _complain(self, where: str, what: str) -> None:
        self.violations.append(f"{self.now():.3f} {where}: {what}")


class WatchedMachine(ConfigMachine):
    """A machine whose every step is looked at."""

    __slots__ = ("_chains", "_where")

    def __init__(self, chains: Chains, where: str) -> None:
        super().__init__()
        self._chains = chains
        self._where = where

    def apply(self, body: bytes) -> bytes:
        result = super().apply(body)
        if body[0] == Operation.STEP:
            published = published_of(result)
            if any(made.changed for made in published.made):
                self._chains.on_step(self._where, self, ops.decode(body), published.step)
        return result

    def load(self, data: bytes) -> None:
        super().load(data)
        for application in self.applications():
            for configuration in application.configurations.values():
                self._chains.on_version(self._where, application.name, configuration)
