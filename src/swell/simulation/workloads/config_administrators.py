"""Administrators: they publish, read, wait for receipts and ask for the status, several at once.

Every publication has an author of its own, so that the log tells which of them happened. Values are
written once. What an administrator has read it takes as the condition of some later publications.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.client.session_pending import Answer
from swell.config import reports, requests
from swell.config.edits import Edit
from swell.config.messages import Level
from swell.config.operations import CONFIG_SERVICE, Got
from swell.config.reports import REPORT_SERVICE
from swell.config.versions import NO_VERSION
from swell.errors import OutcomeUnknownError, SwellError
from swell.simulation.checkers.followers import Followers
from swell.simulation.checkers.publications import Outcome, Publication, Publications
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.clients import Client
from swell.simulation.workloads.config_values import NAMES, edit
from swell.store.request import Request

DEADLINE_S = 4.0
THINK_S = (0.05, 0.8)
ENOUGH = 300
"""With so many publications acknowledged they publish less: a run is long enough for all that fails
to be felt."""

NAMES_MAX = 100

Done = Callable[[Answer | SwellError], None]


class Administrator(Client):
    """One of them."""

    def __init__(
        self,
        simulation: Simulation,
        number: int,
        site: str,
        nodes: Callable[[], Sequence[str]],
        applications: Sequence[str],
        publications: Publications,
        followers: Followers,
    ) -> None:
        super().__init__(simulation, f"admin{number}", site, nodes, THINK_S)
        self._applications = applications
        self._publications = publications
        self._followers = followers
        self._count = 0
        self._seen: dict[tuple[str, str], list[tuple[int, bytes]]] = {}
        """Versions and their ids, as they were read."""

    def forget(self) -> None:
        self._seen.clear()

    def _call(self, service: int, request: Request, deadline_s: float, done: Done) -> None:
        """One operation; nobody hears of it if this life ends before."""
        starts = self.process.starts

        def in_this_life(outcome: Answer | SwellError) -> None:
            if self.process.starts == starts:
                done(outcome)

        place, read, body = request
        self.session.call(service, place, read, body, deadline_s, in_this_life)

    # What to ask.

    def ask(self) -> None:
        rng = self.rng
        application = rng.choice(self._applications)
        chance = rng.random()
        if chance < (0.7 if self._publications.answered < ENOUGH else 0.3):
            self.publish(application, self._edits(application), DEADLINE_S, self._published)
        elif chance < 0.95:
            self.read(application, rng.choice(NAMES), DEADLINE_S, lambda known: self.think())
        else:
            self._ask_status(application, rng.choice(NAMES))

    def _edits(self, application: str) -> tuple[Edit, ...]:
        rng = self.rng
        count = rng.choice((1, 1, 1, 1, 2, 3))
        made = []
        for name in rng.sample(NAMES, count):
            self._count += 1
            seen = self._seen.get((application, name), [])
            condition = None
            if rng.random() < 0.2:
                condition = seen[-1][1] if seen else NO_VERSION
            versions = [version for version, _ in seen]
            made.append(edit(rng, name, f"{self.name}-{self._count}", versions, condition))
        return tuple(made)

    # Publishing.

    def publish(
        self,
        application: str,
        edits: tuple[Edit, ...],
        deadline_s: float,
        ended: Callable[[Publication], None],
    ) -> None:
        self._count += 1
        author = f"{self.name}.{self.process.starts}.{self._count}"
        publication = self._publications.call(author, application, edits)

        def done(outcome: Answer | SwellError) -> None:
            if isinstance(outcome, Answer):
                published = requests.published_of(outcome.body)
                self._publications.acknowledged(publication, published)
                for name, made in requests.made_of(edits, published).items():
                    self._learn(application, name, made.version, made.id)
            elif not isinstance(outcome, OutcomeUnknownError):
                publication.outcome = Outcome.REFUSED
            ended(publication)

        request = requests.publish(application, edits, author)
        self._call(CONFIG_SERVICE, request, deadline_s, done)

    def _learn(self, application: str, name: str, version: int, id: bytes) -> None:
        seen = self._seen.setdefault((application, name), [])
        seen.append((version, id))
        del seen[:-4]

    def _published(self, publication: Publication) -> None:
        published = publication.published
        if published is not None and published.step and self.rng.random() < 0.3:
            self._wait(publication.application, published.step)
        else:
            self.think()

    def _wait(self, application: str, step: int) -> None:
        """Until the step is with everybody, or most of the time is over."""
        level = self.rng.choice((Level.DELIVERED, Level.APPLIED, Level.APPLIED))
        question = reports.Await(application, step, level, NAMES_MAX)

        def done(outcome: Answer | SwellError) -> None:
            if isinstance(outcome, Answer):
                self._followers.on_awaited(application, step, reports.awaited_of(outcome.body))
            self.think()

        deadline_s = self.rng.choice((0.3, DEADLINE_S))
        self._call(REPORT_SERVICE, reports.request(question), deadline_s, done)

    # Reading.

    def read(
        self, application: str, name: str, deadline_s: float, ended: Callable[[bool], None]
    ) -> None:
        """The newest version; `ended(known)`: was an answer heard?"""
        least = self._publications.acknowledged_version(application, name)

        def done(outcome: Answer | SwellError) -> None:
            if isinstance(outcome, Answer):
                got = requests.got_of(outcome.body)
                self._publications.read(application, name, least, got)
                if isinstance(got, Got):
                    self._learn(application, name, got.version, got.id)
            ended(isinstance(outcome, Answer))

        self._call(CONFIG_SERVICE, requests.get(application, name), deadline_s, done)

    def _ask_status(self, application: str, name: str) -> None:
        def done(outcome: Answer | SwellError) -> None:
            if isinstance(outcome, Answer):
                self._followers.on_status(application, name, reports.status_of(outcome.body))
            self.think()

        request = reports.request(reports.StatusOf(application, name))
        self._call(REPORT_SERVICE, request, DEADLINE_S, done)
