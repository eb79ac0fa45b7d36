"""The simulated network: latency between sites, rules that disturb it, and dialling.

A rule concerns the paths from its left side to its right side (and back, if both ways); a side
is a set of names of processes and sites. A rule may be for links of one purpose alone, as where a
filter drops one kind of traffic and lets the rest pass. Rules change rarely and frames are many:
each link caches what the rules mean for it, and every change of rules refreshes every link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from swell.simulation.link import SimLink
from swell.simulation.outgoing import CLOSED, OPENING, UP, Outgoing
from swell.simulation.world import DEAD, HELD
from swell.wire.limits import HANDSHAKE_S_MAX
from swell.world import Address

if TYPE_CHECKING:
    from swell.simulation.process import Process
    from swell.simulation.simulation import Simulation
    from swell.simulation.world import SimWorld

LATENCY_S_INSIDE = 0.000_25
LATENCY_S_BETWEEN = 0.010

USER_TIMEOUT_S = 20.0
"""A link whose data goes unacknowledged for that long breaks (TCP_USER_TIMEOUT)."""

Latency = Callable[[str, str], float] | Mapping[tuple[str, str], float]
"""One-way seconds between two sites: a function, or a matrix given in either order."""


class Rule(NamedTuple):
    """A disturbance of the paths between two sides."""

    left: frozenset[str]
    right: frozenset[str]
    both_ways: bool = True
    cut: bool = False
    clog_s: float = 0.0
    """Frames trickle, each up to that long after the one before it."""
    extra_s: float = 0.0
    """Added latency."""
    purpose: str = ""
    """Only links that are for this, as `Network.purpose` names it; empty: all links."""

    def covers(self, source: Process, target: Process, purpose: str = "") -> bool:
        if self.purpose and self.purpose != purpose:
            return False
        return (_on(source, self.left) and _on(target, self.right)) or (
            self.both_ways and _on(source, self.right) and _on(target, self.left)
        )


def _on(process: Process, side: frozenset[str]) -> bool:
    return process.name in side or process.site in side


class Network:
    """All links of a simulation."""

    def __init__(self, simulation: Simulation, latency: Latency | None, jitter: float) -> None:
        self.simulation = simulation
        self.jitter = jitter
        """Each frame takes up to this fraction longer than the latency."""
        self.user_timeout_s = USER_TIMEOUT_S
        self.rng = simulation.rng("network")
        self.random = self.rng.random
        self.rules: list[Rule] = []
        self.stalled: dict[SimLink, None] = {}
        """Dials that nobody answers for now."""
        self.lingering: dict[Outgoing, None] = {}
        """Closed ends with something still to be sent."""
        self.purpose: Callable[[SimLink], str] = lambda link: ""
        """What a link is for, by the end that dialled it; asked only where a rule wants to know."""
        self._latency = latency
        self._latencies: dict[tuple[str, str], float] = {}

    # -- rules ---------------------------------------------------------------------------------

    def partition(self, left: Iterable[str], right: Iterable[str], both_ways: bool = True) -> Rule:
        """Cut the paths between two sides, or only those from left to right."""
        return self.add(Rule(frozenset(left), frozenset(right), both_ways, cut=True))

    def clog(self, left: Iterable[str], right: Iterable[str], clog_s: float) -> Rule:
        return self.add(Rule(frozenset(left), frozenset(right), clog_s=clog_s))

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        self.refresh()
        return rule

    def remove(self, rule: Rule) -> None:
        """End one rule; harmless if it is gone already."""
        if rule in self.rules:
            self.rules.remove(rule)
            self.refresh()

    def clear(self) -> None:
        if self.rules:
            self.rules.clear()
            self.refresh()

    def lose(self, link: SimLink) -> None:
        """Break one connection: both ends go down, what was in flight is lost."""
        if link.other is not None:
            link.other.break_off("lost")
        link.break_off("lost")

    def links_between(self, a: str, b: str = "") -> list[SimLink]:
        """The ends at `a` of its established links, to `b` or to anybody."""
        world = self.simulation.processes[a].world
        if world is None:
            return []
        return [
            link
            for link in world.links
            if link.state == UP and link.other is not None
            if not b or link.other.world.name == b
        ]

    def refresh(self) -> None:
        """Tell every link what the rules mean for it, and let stalled dials try again."""
        for process in self.simulation.processes.values():
            if process.world is not None:
                for link in list(process.world.links):
                    link.refresh()
        for closed in list(self.lingering):
            closed.refresh()
        self.retry_dials()

    def set_path(self, link: Outgoing) -> None:
        source = link.world.process
        target = self.simulation.processes.get(link.address.host)
        link.latency_s = self.latency_s(source, target)
        link.cut = link.deaf = False
        link.clog_s = 0.0
        if target is None:
            return
        purpose = self._purpose_of(link)
        for rule in self.rules:
            if rule.covers(source, target, purpose):
                link.cut = link.cut or rule.cut
                link.clog_s = max(link.clog_s, rule.clog_s)
                link.latency_s += rule.extra_s
            elif rule.cut and rule.covers(target, source, purpose):
                link.deaf = True

    def _purpose_of(self, link: Outgoing) -> str:
        if not any(rule.purpose for rule in self.rules):
            return ""
        assert isinstance(link, SimLink)
        return self.purpose(link if link.dialed or link.other is None else link.other)

    def latency_s(self, source: Process, target: Process | None) -> float:
        """One way, without rules and jitter."""
        pair = (source.site, source.site if target is None else target.site)
        latency_s = self._latencies.get(pair)
        if latency_s is None:
            latency_s = self._latencies[pair] = self._look_up(*pair)
        return latency_s

    def _look_up(self, source: str, target: str) -> float:
        if callable(self._latency):
            return self._latency(source, target)
        if self._latency is not None:
            for pair in ((source, target), (target, source)):
                if pair in self._latency:
                    return self._latency[pair]
        return LATENCY_S_INSIDE if source == target else LATENCY_S_BETWEEN

    def connected(self, source: Process, target: Process, purpose: str = "") -> bool:
        """True if bytes can go and come back."""
        return not any(
            rule.cut
            and (rule.covers(source, target, purpose) or rule.covers(target, source, purpose))
            for rule in self.rules
        )

    # -- dialling ------------------------------------------------------------------------------

    def dial(self, world: SimWorld, address: Address, identity: str) -> SimLink:
        """TCP and TLS handshake: two round trips for the dialler, half a one more until the
        accepting side hears of it."""
        link = SimLink(self, world, address, dialed=True)
        link.identity = identity
        if world.gate == DEAD:
            link.discard()
            return link
        self.set_path(link)
        time_s = self.simulation.time_s
        self.simulation.push(time_s + 3 * self._jittered(link.latency_s), self._knock, link)
        return link

    def retry_dials(self) -> None:
        """Something changed: whoever waits for an answer sends again."""
        stalled, self.stalled = self.stalled, {}
        for link in stalled:
            time_s = self.simulation.time_s + self._jittered(link.latency_s)
            self.simulation.push(time_s, self._knock, link)

    def _knock(self, link: SimLink) -> None:
        if link.state != OPENING:
            return
        target = self.simulation.processes.get(link.address.host)
        source = link.world.process
        if target is not None and not (
            target.reachable and self.connected(source, target, self._purpose_of(link))
        ):
            self.stalled[link] = None
            self.expire_later(link)
        elif target is None or target.world is None:
            self._answer(link, "refused")
        elif link.identity and link.identity != target.identity:
            self._answer(link, "identity")
        else:
            if target.world.gate:
                self.expire_later(link)
            target.world.admit(target.world, self._accept, (link, target.world))

    def _accept(self, pair: tuple[SimLink, SimWorld]) -> None:
        link, world = pair
        if link.state != OPENING:
            return
        source = link.world.process
        accepted = SimLink(self, world, Address(source.name, 0), dialed=False)
        accepted.join(link)
        link.join(accepted)
        self.set_path(accepted)
        time_s = self.simulation.time_s + self._jittered(accepted.latency_s)
        self.simulation.push(time_s, link.establish, None)

    def _answer(self, link: SimLink, reason: str) -> None:
        self.simulation.counters[f"dial-{reason}"] += 1
        time_s = self.simulation.time_s + self._jittered(link.latency_s)
        self.simulation.push(time_s, link.end, reason)

    def expire_later(self, link: SimLink) -> None:
        """The dial fails unless it succeeds within the handshake's time."""
        time_s = max(link.opened_s + HANDSHAKE_S_MAX, self.simulation.time_s)
        self.simulation.push(time_s, self._expire_dial, link)

    def _expire_dial(self, link: SimLink) -> None:
        if link.state == OPENING:
            self.simulation.counters["dial-timeout"] += 1
            other = link.other
            link.break_off("timeout")
            if other is not None and other.state != CLOSED:
                other.discard()

    def _jittered(self, latency_s: float) -> float:
        return latency_s * (1.0 + self.jitter * self.random())

    # -- health checks -------------------------------------------------------------------------

    def probe(
        self,
        world: SimWorld,
        address: Address,
        kind: str,
        timeout_s: float,
        done: Callable[[bool], None],
    ) -> None:
        """TCP probes are answered by a kernel, HTTP probes only by a process that runs."""
        source = world.process
        target = self.simulation.processes.get(address.host)

        def answer(_: None) -> None:
            world.post(world, done, True)

        def silence(_: None) -> None:
            world.post(world, done, False)

        def look(_: None) -> None:
            delay_s = self._jittered(self.latency_s(source, target))
            if target is None or (target.reachable and target.world is None):
                self.simulation.push(self.simulation.time_s + delay_s, silence, None)
            elif (
                target.reachable
                and self.connected(source, target)
                and (kind == "tcp" or (target.world is not None and target.world.gate != HELD))
                and 2 * delay_s <= timeout_s
            ):
                self.simulation.push(self.simulation.time_s + delay_s, answer, None)
            else:
                self.simulation.push(self.simulation.time_s + timeout_s - delay_s, silence, None)

        delay_s = min(timeout_s / 2, self._jittered(self.latency_s(source, target)))
        self.simulation.push(self.simulation.time_s + delay_s, look, None)
