"""Publications: acknowledged exactly once, refused never, unknown at most once.

Every publication has an author of its own, which the step in the log names. Besides: a conditional
one saw the version it named, all of a batch is in one step, and neither reads nor publications that
began after an acknowledgement fall behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from swell.config import operations as ops
from swell.config.edits import Edit
from swell.config.operations import Published
from swell.config.requests import made_of
from swell.config.versions import NO_VERSION
from swell.simulation.checkers.versions import Chains


class Outcome(Enum):
    UNKNOWN = "unknown"
    """Also while it is open."""
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


@dataclass
class Publication:
    """One step that somebody asked for. `after`: the newest step acknowledged before."""

    author: str
    application: str
    edits: tuple[Edit, ...]
    after: int
    outcome: Outcome = Outcome.UNKNOWN
    published: Published | None = None


@dataclass
class Publications:
    """What administrators asked and heard."""

    chains: Chains
    all: list[Publication] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    reads: int = 0
    answered: int = 0
    """Publications that were acknowledged."""
    _steps: dict[str, int] = field(default_factory=dict)
    """Application → newest step acknowledged."""
    _versions: dict[tuple[str, str], int] = field(default_factory=dict)

    def call(self, author: str, application: str, edits: tuple[Edit, ...]) -> Publication:
        """Somebody is about to publish."""
        made = Publication(author, application, edits, self._steps.get(application, 0))
        self.all.append(made)
        return made

    def acknowledged(self, publication: Publication, published: Published) -> None:
        publication.outcome, publication.published = Outcome.ACKNOWLEDGED, published
        self.answered += 1
        application = publication.application
        self._steps[application] = max(self._steps.get(application, 0), published.step)
        for name, made in made_of(publication.edits, published).items():
            key = application, name
            self._versions[key] = max(self._versions.get(key, 0), made.version)

    def count(self, outcome: Outcome) -> int:
        return sum(1 for one in self.all if one.outcome is outcome)

    # Reads.

    def acknowledged_version(self, application: str, name: str) -> int:
        """What a read that begins now may not fall behind."""
        return self._versions.get((application, name), 0)

    def read(self, application: str, name: str, least: int, got: ops.Got | None) -> None:
        """A read has returned this; `least` was acknowledged when it began."""
        self.reads += 1
        version = got.version if got is not None else 0
        if version < least:
            self.violations.append(
                f"{application}/{name}: version {version} was read, {least} was acknowledged before"
            )
        if got is None:
            return
        known = self.chains.find(application, name, got.version)
        if known is None or (known.id, known.step, known.data) != (got.id, got.step, got.data):
            self.violations.append(
                f"{application}/{name}: read was version {got.version} of step {got.step},"
                f" which is {known}"
            )

    # The verdict.

    def problems(self) -> list[str]:
        """What is wrong with any publication, at the end."""
        found = list(self.violations)
        for one in self.all:
            if one.outcome is Outcome.REFUSED and one.author in self.chains.authors:
                at = self.chains.authors[one.author]
                found.append(f"{one.author} was refused and made step {at}")
            elif one.published is not None:
                found += self._wrongs(one, one.published)
        return found

    def _wrongs(self, one: Publication, published: Published) -> list[str]:
        """An acknowledged one is in the log as it was said, or changed nothing."""
        parts = made_of(one.edits, published)
        changed = tuple(sorted(name for name, made in parts.items() if made.changed))
        at = self.chains.authors.get(one.author)
        if not changed:
            return [f"{one.author} changed nothing and made step {at}"] if at else []
        if at != (one.application, published.step):
            return [f"{one.author} was told step {published.step} and made {at}"]
        found = []
        if published.step <= one.after:
            found.append(
                f"{one.author}: step {published.step}, {one.after} was acknowledged before"
            )
        if self.chains.names_in(one.application, published.step) != changed:
            found.append(f"{one.author}: step {published.step} is not all of {changed}")
        for name, made in parts.items():
            known = self.chains.find(one.application, name, made.version)
            if known is None and made.id == NO_VERSION and not made.changed:
                continue  # a deletion of nothing
            if known is None or known.id != made.id:
                found.append(f"{one.author} was told {name} is {made}, which is {known}")
        for edit in one.edits:
            made = parts[edit.name]
            if made.changed and not self._was_met(one.application, edit, made.version):
                found.append(f"{one.author}: {edit.name} was made from another version")
        return found

    def _was_met(self, application: str, edit: Edit, version: int) -> bool:
        condition = edit.condition
        known = self.chains.find(application, edit.name, version)
        if condition is None or known is None or condition == known.base:
            return True
        before = self.chains.find(application, edit.name, version - 1)
        return condition == NO_VERSION and (before is None or before.data is None)
