"""Probing: one member per interval is asked whether it is there (SWIM, section 3).

The order is a shuffled round, so that everybody is asked once per round. A silent member is asked
again through helpers; helpers that cannot reach it say so (`Nack`), which tells a dead member from
an own bad connection (Lifeguard, section IV.A). Round trips are taken from direct answers only.

Invariants: at most one probe per target; every probe ends by an answer, by failure or by
`forget`; a probe whose timer fired late fails nobody, it waits again.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from swell.overlay.awareness import Awareness
from swell.overlay.coordinates import Coordinate
from swell.overlay.membership_messages import Ack, Nack, PingRequest
from swell.overlay.roster import Roster
from swell.settings import MembershipSettings
from swell.wire import codec
from swell.world import Timer, World

NACK_FRACTION = 0.8
"""A helper says no after this part of the time-out, so that it is heard before the probe ends."""

RELAYS_MAX = 128


class Prober(Protocol):
    """Who probes are made for."""

    def ping(self, member: int, sequence: int) -> bool: ...

    def send(self, member: int, frame: bytes) -> bool: ...

    def on_silent(self, member: int) -> None:
        """The member answered neither us nor the helpers."""
        ...

    def on_round_trip(self, member: int, coordinate: Coordinate | None, rtt_s: float) -> None: ...


class Probe:
    """A question that is not answered yet."""

    __slots__ = ("begun_s", "due_s", "helpers", "nacks", "sequence", "target", "timer", "wait_s")

    def __init__(self, target: int, sequence: int, begun_s: float) -> None:
        self.target = target
        self.sequence = sequence
        self.begun_s = begun_s
        self.helpers: list[int] | None = None
        self.nacks: list[int] = []
        self.due_s = begun_s
        self.wait_s = 0.0
        self.timer: Timer | None = None


class Relay:
    """A question asked for somebody else."""

    __slots__ = ("asker", "asker_sequence", "target", "timer")

    def __init__(self, asker: int, asker_sequence: int, target: int, timer: Timer) -> None:
        self.asker = asker
        self.asker_sequence = asker_sequence
        self.target = target
        self.timer = timer


class Probing:
    """The probes of one node: its own rounds, and those it makes for others."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        awareness: Awareness,
        roster: Roster,
        prober: Prober,
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._settings = settings
        self._awareness = awareness
        self._roster = roster
        self._prober = prober
        self._counters = counters
        self._sequence = 0
        self._probes: dict[int, Probe] = {}
        self._targets: dict[int, Probe] = {}
        self._relays: dict[int, Relay] = {}
        self._round: list[int] = []
        self._round_due_s = 0.0
        self._round_wait_s = 0.0
        self._round_timer: Timer | None = None

    def start(self) -> None:
        """Begin the rounds, at a random point of the second interval: links need the first."""
        self._arm_round(self._settings.probe_interval_s * (1.0 + self._world.rng.random()))

    def stop(self) -> None:
        timers = [probe.timer for probe in self._probes.values()]
        timers += [relay.timer for relay in self._relays.values()]
        for timer in (*timers, self._round_timer):
            if timer is not None:
                timer.cancel()
        self._probes.clear()
        self._targets.clear()
        self._relays.clear()
        self._round.clear()

    def sizes(self) -> dict[str, int]:
        return {
            "probes": len(self._probes),
            "targets": len(self._targets),
            "relays": len(self._relays),
            "round": len(self._round),
        }

    # Rounds.

    def _arm_round(self, wait_s: float) -> None:
        self._round_wait_s = wait_s
        self._round_due_s = self._world.now() + wait_s
        self._round_timer = self._world.call_later(wait_s, self._expire_round)

    def _expire_round(self) -> None:
        self._awareness.stalled(self._world.now() - self._round_due_s, self._round_wait_s)
        self._arm_round(self._awareness.patience_s(self._settings.probe_interval_s))
        target = self._next_target()
        if target is not None:
            self.probe(target)

    def _next_target(self) -> int | None:
        for _ in range(2):
            while self._round:
                target = self._round.pop()
                if self._roster.is_living(target):
                    return target
            self._round = self._roster.peers.copy()
            self._world.rng.shuffle(self._round)
        return None

    def enlist(self, member: int) -> None:
        """A new member takes a random place in the present round."""
        self._round.insert(self._world.rng.randint(0, len(self._round)), member)

    def forget(self, member: int) -> None:
        """The member is dead: nothing more is asked of it."""
        probe = self._targets.get(member)
        if probe is not None:
            self._end(probe)
        if member in self._round:
            self._round = [other for other in self._round if other != member]

    # Own probes.

    def probe(self, target: int) -> None:
        """Ask `target` now, unless it is being asked already."""
        if target in self._targets:
            return
        self._sequence += 1
        probe = Probe(target, self._sequence, self._world.now())
        self._probes[probe.sequence] = self._targets[target] = probe
        if self._prober.ping(target, probe.sequence):
            self._arm(probe, self._direct_wait_s())
        else:
            self._ask_helpers(probe)

    def _direct_wait_s(self) -> float:
        return self._awareness.patience_s(self._settings.probe_timeout_s)

    def _indirect_wait_s(self) -> float:
        settings = self._settings
        return self._awareness.patience_s(settings.probe_interval_s - settings.probe_timeout_s)

    def _arm(self, probe: Probe, wait_s: float) -> None:
        probe.wait_s = wait_s
        probe.due_s = self._world.now() + wait_s
        probe.timer = self._world.call_later(wait_s, lambda: self._expire(probe))

    def _expire(self, probe: Probe) -> None:
        late_s = self._world.now() - probe.due_s
        if self._awareness.stalled(late_s, probe.wait_s):
            direct = probe.helpers is None
            self._arm(probe, self._direct_wait_s() if direct else self._indirect_wait_s())
        elif probe.helpers is None:
            self._ask_helpers(probe)
        else:
            self._end(probe)
            missing = len(probe.helpers) - len(probe.nacks)
            self._awareness.note(missing if probe.helpers else 1)
            self._prober.on_silent(probe.target)

    def _ask_helpers(self, probe: Probe) -> None:
        frame = codec.encode(PingRequest(probe.sequence, probe.target))
        peers = self._roster.peers
        wanted = self._settings.indirect_probes
        probe.helpers = []
        for helper in self._world.rng.sample(peers, len(peers)):
            if len(probe.helpers) == wanted:
                break
            if helper != probe.target and self._prober.send(helper, frame):
                probe.helpers.append(helper)
        self._arm(probe, self._indirect_wait_s())

    def _end(self, probe: Probe) -> None:
        del self._probes[probe.sequence]
        del self._targets[probe.target]
        if probe.timer is not None:
            probe.timer.cancel()

    def on_ack(self, sender: int, ack: Ack) -> None:
        probe = self._probes.get(ack.sequence)
        if probe is None:
            self._pass_on(sender, ack.sequence)
            return
        direct = sender == probe.target
        if not direct and sender not in (probe.helpers or ()):
            self._counters["ack-of-stranger"] += 1
            return
        self._end(probe)
        self._awareness.note(-1)
        if direct:
            rtt_s = self._world.now() - probe.begun_s
            self._prober.on_round_trip(sender, ack.coordinate, rtt_s)

    def on_nack(self, sender: int, nack: Nack) -> None:
        probe = self._probes.get(nack.sequence)
        if probe is not None and sender in (probe.helpers or ()) and sender not in probe.nacks:
            probe.nacks.append(sender)

    # Probes for others.

    def on_ping_request(self, sender: int, request: PingRequest) -> None:
        refusal = codec.encode(Nack(request.sequence))
        if len(self._relays) >= RELAYS_MAX:
            self._counters["relay-table-full"] += 1
            self._prober.send(sender, refusal)
            return
        self._sequence += 1
        sequence = self._sequence
        if not self._prober.ping(request.target, sequence):
            self._prober.send(sender, refusal)
            return
        wait_s = NACK_FRACTION * self._settings.probe_timeout_s
        timer = self._world.call_later(wait_s, lambda: self._refuse(sequence, refusal))
        self._relays[sequence] = Relay(sender, request.sequence, request.target, timer)

    def _refuse(self, sequence: int, refusal: bytes) -> None:
        """Say that the target is silent, and stay ready for a late answer: a patient asker
        still waits for it."""
        relay = self._relays[sequence]
        self._prober.send(relay.asker, refusal)
        relay.timer = self._world.call_later(
            2 * self._settings.probe_interval_s, lambda: self._drop_relay(sequence)
        )

    def _drop_relay(self, sequence: int) -> None:
        del self._relays[sequence]

    def _pass_on(self, sender: int, sequence: int) -> None:
        relay = self._relays.get(sequence)
        if relay is None or relay.target != sender:
            self._counters["ack-late"] += 1
            return
        relay.timer.cancel()
        del self._relays[sequence]
        self._prober.send(relay.asker, codec.encode(Ack(relay.asker_sequence)))
