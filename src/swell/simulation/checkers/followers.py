"""What containers have, compared with the chains: content, order, durability, and what they claim.

Of every configuration a container has the very version of the chain; within a life versions and
steps only grow; what it has acknowledged is there after a restart. What a primary counts as applied
was applied, and what it answers to those who wait is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from swell.config.delivery.feeds import Feed as ServedFeed
from swell.config.delivery.interest import matcher
from swell.config.messages import Level
from swell.config.reports import Awaited, StatusReport
from swell.container.documents import Document, Update
from swell.container.feed import Feed
from swell.container.session import ContainerSession
from swell.simulation.checkers.versions import Chains

_DELIVERED, _APPLIED = int(Level.DELIVERED), int(Level.APPLIED)


@dataclass
class Followed:
    """One application as one container has followed it, in all of its lives."""

    matches: Callable[[str], bool]
    seen: dict[str, int] = field(default_factory=dict)
    """The highest version that was ever there, by name."""
    accepted: dict[str, int] = field(default_factory=dict)
    """... and that its application took."""
    refused: dict[str, list[int]] = field(default_factory=dict)
    """Versions that its application refused."""
    latest: dict[str, int] = field(default_factory=dict)
    """Versions in this life."""
    retold: dict[str, int] = field(default_factory=dict)
    """Versions of an earlier life that its application is about to hear of once more."""
    step: int = 0
    """Of the last change in this life."""
    floor: int = 0
    """What was acknowledged, with a snapshot."""

    def note(self, name: str, version: int) -> None:
        self.seen[name] = max(self.seen.get(name, 0), version)

    def refuse(self, name: str, version: int) -> None:
        self.refused.setdefault(name, []).append(version)

    def took(self, name: str, version: int) -> bool:
        """Whether its application took a version, or judged a later one in its place."""
        refused = self.refused.get(name, ())
        if self.accepted.get(name, 0) >= version:
            return True
        return version not in refused and max(refused, default=0) > version

    def accept(self, name: str, version: int) -> None:
        self.accepted[name] = max(self.accepted.get(name, 0), version)


class Followers:
    """All containers of a run."""

    def __init__(self, chains: Chains) -> None:
        self.chains = chains
        self.violations: list[str] = []
        self.updates = 0
        self.answers = 0
        self._all: dict[tuple[str, str], Followed] = {}
        """By container and application."""

    def follow(self, container: str, application: str, interest: tuple[str, ...]) -> None:
        """A container will follow an application, by one feed in all its lives."""
        self._all[container, application] = Followed(matcher(interest))

    def of(self, container: str, application: str) -> Followed:
        return self._all[container, application]

    # A life.

    def on_end(self, session: ContainerSession, kept: bool) -> None:
        """A life is over; what it had acknowledged must be there in the next if it was `kept`. One
        that had not read it all has acknowledged nothing: what was before it still counts."""
        for attachment in session.attaching.all.values():
            followed = self.of(session.name, attachment.feed.application)
            if session.ready or not kept:
                followed.floor = attachment.receipts.durable if kept else 0
            followed.latest.clear()
            followed.retold.clear()
            followed.step = 0

    def on_ready(self, session: ContainerSession, judges: bool) -> None:
        """A life begins with what an earlier one left. An application that `judges` hears of it as
        of changes, but of nothing that was deleted: it begins without it. A disk that cannot be
        read gives back nothing, which the container says."""
        unreadable = session.snapshot is not None and session.snapshot.unreadable
        for attachment in session.attaching.all.values():
            feed = attachment.feed
            followed = self.of(session.name, feed.application)
            if feed.at < followed.floor and not unreadable:
                self._complain(
                    session.name,
                    f"begins with step {feed.at} of {feed.application}, acknowledged was"
                    f" {followed.floor}",
                )
            for document in feed.documents.values():
                self._compare(session.name, feed.application, document)
                followed.note(document.name, document.version)
                retold = judges and not document.deleted
                followed.latest[document.name] = document.version - retold
                if retold:
                    followed.retold[document.name] = document.version
                else:
                    followed.accept(document.name, document.version)

    def on_update(self, container: str, update: Update) -> None:
        """The application of a container hears of a change."""
        followed = self.of(container, update.application)
        if followed.retold.pop(update.name, 0) != update.version:
            self.updates += 1
        latest = followed.latest.get(update.name, 0)
        if update.version <= latest:
            self._complain(
                container,
                f"{update.application}/{update.name} goes from version {latest} to"
                f" {update.version}",
            )
        followed.latest[update.name] = update.version
        followed.note(update.name, update.version)
        self._compare(container, update.application, update.document)

    def _compare(self, container: str, application: str, document: Document) -> None:
        """What is there is what the chain says."""
        known = self.chains.find(application, document.name, document.version)
        data = None if document.deleted else document.bytes()
        if known is None or (known.id, known.step, known.data) != (
            document.id,
            document.step,
            data,
        ):
            self._complain(
                container,
                f"{application}/{document.name} is version {document.version}"
                f" {document.id.hex()[:8]} of step {document.step}, which is {known}",
            )

    # At any moment.

    def look(self, session: ContainerSession) -> None:
        """Everything up to the step that a container is at is there, and no more is claimed."""
        for attachment in session.attaching.all.values():
            feed, receipts = attachment.feed, attachment.receipts
            claimed = max(min(receipts.durable, feed.at), min(receipts.applied, feed.at))
            step = claimed if feed.fetching or feed.broken else feed.at
            followed = self.of(session.name, feed.application)
            for name in self._behind(followed, feed.application, step, versions_of(feed)):
                self._complain(
                    session.name,
                    f"is at step {step} of {feed.application} and has version"
                    f" {versions_of(feed).get(name, 0)} of {name}",
                )

    def _behind(
        self, followed: Followed, application: str, step: int, versions: dict[str, int]
    ) -> Iterator[str]:
        """Names of interest of which these versions are older than those of a step. Whoever
        catches up skips what has changed again since: it comes with a later step."""
        for name in self.chains.names(application):
            version = self.chains.version_at(application, name, step)
            changed_again = self.chains.find(application, name, version + 1) is not None
            if versions.get(name, 0) < version and not changed_again and followed.matches(name):
                yield name

    def lacks(self, session: ContainerSession) -> list[str]:
        """Of which applications a container has not got the newest step."""
        return [
            feed.application
            for feed in (one.feed for one in session.attaching.all.values())
            if any(
                self._behind(
                    self.of(session.name, feed.application),
                    feed.application,
                    self.chains.step(feed.application),
                    versions_of(feed),
                )
            )
        ]

    # What primaries say of them.

    def look_at_table(self, node: str, feed: ServedFeed) -> None:
        """Whoever is counted as applied was seen to have it."""
        for container, member in feed.members.items():
            step = member.reached(_APPLIED)
            followed = self.of(container.name, feed.application)
            for name in self._behind(followed, feed.application, step, followed.seen):
                self._complain(
                    node,
                    f"counts {container.name} as at step {step} of {feed.application}, which never"
                    f" had {name} of it",
                )

    def on_awaited(self, application: str, step: int, awaited: Awaited) -> None:
        """Those who are named as applied took what the step changed."""
        self.answers += 1
        for named in awaited.applied.names:
            followed = self.of(named.container, application)
            for name in self.chains.names_in(application, step):
                version = self.chains.version_at(application, name, step)
                if followed.matches(name) and not followed.took(name, version):
                    self._complain(
                        "await",
                        f"{named.container} is named as applied in step {step} of {application},"
                        f" of {name} it took version {followed.accepted.get(name, 0)}",
                    )

    def on_status(self, application: str, name: str, report: StatusReport) -> None:
        """Nobody is said to have a version that it never had."""
        self.answers += 1
        for row in report.rows:
            followed = self.of(row.container, application)
            if followed.matches(name) and followed.seen.get(name, 0) < row.version:
                self._complain(
                    "status",
                    f"{row.container} is said to have version {row.version} of"
                    f" {application}/{name}, it had {followed.seen.get(name, 0)}",
                )

    def _complain(self, where: str, what: str) -> None:
        self.violations.append(f"{self.chains.now():.3f} {where} {what}")


def versions_of(feed: Feed) -> dict[str, int]:
    return {name: document.version for name, document in feed.documents.items()}
