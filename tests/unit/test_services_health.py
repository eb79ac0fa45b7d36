"""Health checks at the primary: what is found, what is published, what may not be (RIP-23)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.access.grants import EVERYTHING, NOTHING, Grant, Granted, Right
from swell.config import requests
from swell.config.edits import LINES_MAX, Line, Lines
from swell.config.lines import encode_line
from swell.config.names import INSTANCES
from swell.config.publishing import Publishing
from swell.overlay.contact import Contact
from swell.overlay.sessions import Sessions
from swell.services import health
from swell.services.health import Health
from swell.services.instances import PROTECTED, Instance, check_lines, parse
from swell.services.messages import Doubt, Keep, Kept, Lease
from swell.services.protection import findings, is_protected
from swell.services.subjects import Subject
from swell.services.watching import Service
from swell.settings import ConfigSettings, ServiceSettings
from swell.simulation.simulation import Simulation
from swell.simulation.world import NOBODY
from swell.store.messages import Status
from swell.world import World
from tests.unit.config_toys import APPLICATION, Answers, ToyStore

TTL_S = 4.0
SETTINGS = ServiceSettings(check_interval_s=1.0, check_timeout_s=0.5, failures=3, successes=2)


def instance(id: str, **fields: object) -> Instance:
    about = {"lease": "0" * 16, "host": "nowhere", "port": 1, "ttl_s": TTL_S, **fields}
    return Instance(id=id, **about)  # type: ignore[arg-type]


def subject(one: Instance, now: float = 0.0) -> Subject:
    return Subject(Service(APPLICATION, 0), one, SETTINGS, now)


# Subjects.


def test_silence_makes_unhealthy_then_gone_and_a_word_undoes_both() -> None:
    one = subject(instance("a"), now=10.0)
    assert (one.judge(10.0), one.is_news) == (14.0, False)
    assert (one.judge(14.0), one.healthy, one.gone) == (18.0, False, False)
    assert (one.judge(18.0), one.healthy, one.gone) == (22.0, False, True)
    one.hear(19.0)
    assert (one.healthy, one.gone, one.judge(19.0)) == (True, False, 23.0)


def test_silence_is_no_news_about_who_was_unhealthy_before() -> None:
    one = subject(instance("a", healthy=False))
    assert (one.judge(0.0), one.healthy, one.is_news) == (TTL_S, False, False)
    one.hear(1.0)
    assert one.is_news


def test_probes_count_in_a_row() -> None:
    one = subject(instance("a", check="tcp"))
    seen = []
    for good in (False, False, True, False, False, False, True, False, True, True):
        one.probed(good)
        seen.append(one.healthy)
    assert seen == [True] * 5 + [False] * 4 + [True]
    one.hear(99.0)
    assert one.healthy


# Protection.


@pytest.mark.parametrize(
    ("protect", "healthy", "count", "protected"),
    [
        (0.0, 0, 5, False), (0.5, 0, 0, False), (0.5, 2, 4, False), (0.5, 1, 4, True),
        (0.01, 0, 3, True), (1.0, 3, 3, False), (1.0, 2, 3, True), (0.01, 1, 3, False),
    ],
)  # fmt: skip
def test_when_a_list_is_protected(
    protect: float, healthy: int, count: int, protected: bool
) -> None:
    assert is_protected(protect, healthy, count) is protected


STATES = st.tuples(st.booleans(), st.booleans(), st.booleans())
"""Healthy in the list; healthy as seen; gone."""


@settings(max_examples=150, deadline=None)
@given(st.lists(STATES, max_size=8), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.booleans())
def test_findings_lead_to_what_was_seen(
    states: list[tuple[bool, bool, bool]], protect: float, marked: bool
) -> None:
    """Step by step, until nothing is left to be said: and never a removal while protected."""
    rows = {f"i{n}": instance(f"i{n}", healthy=healthy) for n, (healthy, _, _) in enumerate(states)}
    seen = {f"i{n}": (healthy, gone and not healthy) for n, (_, healthy, gone) in enumerate(states)}
    for _ in range(4):
        keys = {PROTECTED: "1"} if marked else {}
        document = b"".join(
            encode_line(key, text)
            for key, text in sorted({**keys, **{id: one.text for id, one in rows.items()}}.items())
        )
        news = []
        for id, one in rows.items():
            found = subject(one)
            found.healthy, found.gone = seen[id]
            if found.is_news:
                news.append(found)
        lines, verdicts = findings(parse(document), news, protect, 7)
        assert len(lines) == len(verdicts)
        if not lines:
            break
        for line in lines:
            if line.key == PROTECTED:
                marked = line.text is not None
                continue
            assert line.only == rows[line.key].text
            if line.text is None:
                del rows[line.key]
            else:
                rows[line.key] = parse(encode_line(line.key, line.text)).by_id[line.key]
        removed = [line for line in lines if line.key != PROTECTED and line.text is None]
        assert not (removed and marked)
    else:
        raise AssertionError("findings have no end")
    healthy = sum(one.healthy for one in rows.values())
    assert all(rows[id].healthy == seen[id][0] for id in rows)
    assert marked == is_protected(protect, healthy, len(rows))
    if not marked:
        assert not [id for id in rows if seen[id][1]]


# The primary.


class Link:
    """As much of a client's session as is needed."""

    def __init__(self, access: Any) -> None:
        self.access = access
        self.sent: list[Kept] = []

    def send(self, message: Kept) -> bool:
        self.sent.append(message)
        return True


class Primary:
    """One slot that is served, in a simulated world; clients write and commit as a test wants."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.store = ToyStore()
        self.counters: Counter[str] = Counter()
        self.health: Health
        self.probes: list[str] = []
        self.simulation.add("n1", "s", self._factory).start()
        self.client = Answers(self.publishing.execute)
        self.health.on_serving(0)

    def _factory(self, world: World) -> Any:
        me = Contact(1, "n1", "s", "", 1, "n1", 0, 1)
        sessions = Sessions(world, "c", lambda: me, lambda: 0, self.counters)
        self.publishing = Publishing(world, self.store, ConfigSettings(), self.counters)
        self.publishing.check_lines = check_lines
        self.health = Health(world, sessions, self.store, self.publishing, SETTINGS, self.counters)
        return NOBODY

    def commit(self) -> None:
        self.store.commit()
        self.health.on_committed(0)

    def write(self, *lines: Line, committed: bool = True) -> int:
        request = requests.publish(APPLICATION, (Lines(INSTANCES, lines),))
        number = self.client.send(request)
        if committed:
            self.commit()
            self.simulation.run_for(0.001)
        return number

    def run(self, seconds: float) -> None:
        """Whatever is ordered is committed soon."""
        for _ in range(round(seconds / 0.05)):
            self.simulation.run_for(0.05)
            if self.store.log:
                self.commit()

    def keep(self, *leases: Lease, access: Any = EVERYTHING) -> list[tuple[int, int]]:
        link: Any = Link(access)
        self.health.on_keep(link, Keep(1, leases))
        (kept,) = link.sent
        return list(kept.doubts)

    @property
    def listed(self) -> dict[str, bool]:
        application = self.store.machine.application(APPLICATION)
        assert application is not None
        content = application.present(INSTANCES).content
        assert content is not None
        return {one.id: one.healthy for one in parse(content.bytes())}


def lease(one: Instance) -> Lease:
    return Lease(APPLICATION, one.id, one.lease)


def test_a_lease_that_is_named_lives_and_others_do_not() -> None:
    primary = Primary()
    a, b = instance("a"), instance("b")
    primary.write(a.line(), b.line())
    for _ in range(4):
        primary.run(TTL_S / 4)
        assert primary.keep(lease(a)) == []
    primary.run(TTL_S / 4)
    assert primary.listed == {"a": True, "b": False}
    assert primary.keep(lease(a)) == []
    primary.run(TTL_S * 0.9)
    assert primary.listed == {"a": True}


def test_what_a_lease_is_doubted_for() -> None:
    primary = Primary()
    a = instance("a")
    primary.write(a.line())
    other = Lease(APPLICATION, "a", "f" * 16)
    assert primary.keep(lease(a), other, lease(instance("b"))) == [
        (1, Doubt.REPLACED),
        (2, Doubt.ABSENT),
    ]
    reader = Granted([Grant(APPLICATION, "", (Right.READ,))])
    writer = Granted([Grant(APPLICATION, INSTANCES, (Right.WRITE,))])
    assert primary.keep(lease(a), access=reader) == [(0, Doubt.REFUSED)]
    assert primary.keep(lease(a), access=NOTHING) == [(0, Doubt.REFUSED)]
    assert primary.keep(lease(a), access=None) == [(0, Doubt.REFUSED)]
    assert primary.keep(lease(a), access=writer) == []
    primary.health.on_stopped(0)
    assert primary.keep(lease(a)) == [(0, Doubt.ELSEWHERE)]


def test_a_lease_is_known_as_soon_as_it_is_committed() -> None:
    primary = Primary()
    a = instance("a")
    primary.write(a.line(), committed=False)
    assert primary.keep(lease(a)) == [(0, Doubt.ABSENT)]
    primary.store.commit()
    assert primary.keep(lease(a)) == []


def test_a_finding_does_not_touch_what_has_replaced_its_subject() -> None:
    primary = Primary()
    primary.write(instance("a").line())
    primary.simulation.run_for(TTL_S - 0.1)
    number = primary.write(instance("a", lease="1" * 16).line(), committed=False)
    primary.simulation.run_for(0.2)
    assert len(primary.store.log) == 2  # the registration, and what was found before it
    primary.commit()
    assert primary.client.published(number).made[0].version == 2
    assert primary.listed == {"a": True}
    primary.run(TTL_S - 0.5)
    assert primary.listed == {"a": True}


def test_many_that_die_together_take_few_steps() -> None:
    primary = Primary()
    count = 2 * LINES_MAX
    for start in range(0, count, LINES_MAX // 2):
        rows = [instance(f"i{n:04}") for n in range(start, start + LINES_MAX // 2)]
        primary.write(*(one.line() for one in rows))
    ordered = len(primary.store.bodies)
    primary.run(TTL_S + 0.5)
    assert set(primary.listed.values()) == {False}
    assert len(primary.store.bodies) - ordered == 3
    primary.run(TTL_S)
    assert primary.listed == {}


def test_what_was_not_published_is_found_again() -> None:
    primary = Primary()
    primary.write(instance("a").line())
    primary.store.room = 0
    primary.run(TTL_S + 1.0)
    assert primary.counters["service-publish-busy"] >= 2
    primary.store.room = 10
    primary.run(1.0)
    assert primary.listed == {"a": False}
    primary.run(TTL_S)
    assert primary.listed == {}


def test_who_is_primary_no_more_says_nothing() -> None:
    primary = Primary()
    primary.write(instance("a").line(), instance("b", check="tcp").line())
    primary.simulation.run_for(TTL_S + 0.1)
    primary.store.lose()
    primary.health.on_stopped(0)
    ordered = len(primary.store.bodies)
    primary.simulation.run_for(10 * TTL_S)
    assert len(primary.store.bodies) == ordered
    primary.store.serving = True
    primary.health.on_serving(0)
    primary.run(TTL_S - 0.5)
    assert primary.listed == {"a": True, "b": False}
    primary.run(1.0)
    assert primary.listed == {"a": False, "b": False}


def test_probes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBES_MAX", 5)
    primary = Primary()
    rows = [instance(f"i{n:03}", check="tcp") for n in range(60)]
    primary.write(*(one.line() for one in rows))
    primary.run(60.0)
    assert primary.counters["service-probes-full"]
    assert set(primary.listed.values()) == {False}


def test_clients_write_instances_and_nothing_else() -> None:
    primary = Primary()
    for line in (Line(PROTECTED, "1"), Line("a", "{}"), Line("a", "text")):
        number = primary.write(line)
        assert primary.client.given[number][0] is Status.REFUSED
    application = primary.store.machine.application(APPLICATION)
    assert application is None
