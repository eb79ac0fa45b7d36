"""Containers that relay in bad faith: they alter, forge, drop, delay or replay bursts, or claim
receipts that nobody gave. To themselves they are honest, so they are judged like all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swell.config.bursts import Change, StepChanges, burst_id, read_burst, seal
from swell.config.delivery.patience import PRIMARY_WAIT
from swell.config.messages import Level, Receipt, deliver, read_deliver
from swell.config.proofs import PROOF_BYTES
from swell.config.versions import Kind, version_id
from swell.container.children import Child, Children
from swell.container.session import ContainerSession
from swell.overlay.sessions import Session, Sessions
from swell.world import Address, World

ALTER, FORGE, DROP, DELAY, REPLAY, CLAIM = "alter", "forge", "drop", "delay", "replay", "claim"
DEEDS = (ALTER, FORGE, DROP, DELAY, REPLAY, CLAIM)
BARRING = (DROP, DELAY)
"""What it does to one container alone could be that one's fault."""

DELAY_RECEIPT_WAITS = 4.0
OLD_FRAMES_MAX = 16


@dataclass
class Malice:
    """What a relay does, and how often it did, in all its lives."""

    deed: str
    rng: Random
    cluster: str
    share: float = 1.0
    """Of the bursts that it has to pass on."""
    done: dict[bytes, int] = field(default_factory=dict)
    """Burst → to how many it did it."""
    old: list[bytes] = field(default_factory=list)
    patience_s: float = 0.0
    """How long it may wait itself, as the last burst told it."""
    harm: int = 0
    """How often it did something that shows, and time enough to find it out has passed since."""
    _harmless_until: float = 0.0
    _spared: dict[bytes, None] = field(default_factory=dict)

    def tempted(self, burst: bytes, shows: bool, now: float) -> bool:
        """Whether it is bad to this burst, wherever it goes; `shows`: if so, the primary can tell.
        Of many bursts at one time it hears when it is through with waiting for the first, and has
        tried another way."""
        if burst not in self.done and burst not in self._spared:
            if self.rng.random() < self.share:
                self.done[burst] = 0
            else:
                self._spared[burst] = None
        if burst in self._spared:
            return False
        self.done[burst] += shows
        harms = shows and self.deed != REPLAY and self.done[burst] == 1 + (self.deed in BARRING)
        if harms and now >= self._harmless_until:
            self.harm += 1
            self._harmless_until = now + 2.0 * PRIMARY_WAIT * self.patience_s
        return True

    def altered(self, frame: bytes) -> bytes:
        """Somewhere in the burst, a byte is another."""
        digest, data, wait_s, asks = read_deliver(frame)
        head = 11 + int.from_bytes(data[1:3], "big")
        place = self.rng.randrange(head, len(data))
        data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        return deliver(digest, data, wait_s, asks)

    def forged(self, frame: bytes) -> bytes:
        """A burst in the place of the true one, whose changes are invented."""
        digest, data, wait_s, asks = read_deliver(frame)
        burst = read_burst(data)
        key = Ed25519PrivateKey.from_private_bytes(self.rng.randbytes(32))
        value = b"forged %d" % self.rng.randrange(1 << 32)
        steps = tuple(
            StepChanges(
                step.number,
                tuple(
                    Change(
                        change.name, Kind.WHOLE, change.version, change.base,
                        version_id(change.base, Kind.WHOLE, value), value, len(value),
                    )
                    for change in step.changes
                ),
            )
            for step in burst.steps
        )  # fmt: skip
        about = burst.application, burst.interest, burst.epoch, burst.after, burst.upto
        forged = seal(key, self.cluster, *about, steps, burst.sealed_us)
        return deliver(digest, forged, wait_s, asks)


class CrookedChildren(Children):
    """The links to those behind a relay, with malice in between."""

    def __init__(
        self,
        world: World,
        sessions: Sessions,
        counters: Counter[str],
        lost: Callable[[Child], None],
        malice: Malice,
        delay_s: float,
    ) -> None:
        super().__init__(world, sessions, counters, lost)
        self._malice = malice
        self._delay_s = delay_s

    def send(self, address: Address, frame: bytes, pass_: bytes, now: float) -> bool:
        malice, pass_on = self._malice, super().send
        _, data, _, asks = read_deliver(frame)
        # What becomes of one that asks for no receipts shows by the next that does; a delay that
        # the primary has patience for, because all was slow lately, does not show.
        patient = self._delay_s <= PRIMARY_WAIT * malice.patience_s
        if not malice.tempted(burst_id(data), asks and not (malice.deed == DELAY and patient), now):
            return pass_on(address, frame, pass_, now)
        match malice.deed:
            case "alter":
                return pass_on(address, malice.altered(frame), pass_, now)
            case "forge":
                return pass_on(address, malice.forged(frame), pass_, now)
            case "delay":

                def late() -> None:
                    pass_on(address, frame, pass_, self._world.now())

                self._world.call_later(self._delay_s, late)
                return True
            case "replay":
                malice.old = [*malice.old, frame][-OLD_FRAMES_MAX:]
                for old in malice.rng.sample(malice.old, min(2, len(malice.old))):
                    pass_on(address, old, pass_, now)
                return pass_on(address, frame, pass_, now)
            case _:
                return True


class MaliciousSession(ContainerSession):
    """A container whose word as a relay is not to be trusted."""

    def __init__(self, world: World, *arguments: Any, malice: Malice, **more: Any) -> None:
        super().__init__(world, *arguments, **more)
        self._malice = malice
        self.relay.children = CrookedChildren(
            world,
            self.store.peers.sessions,
            self.counters,
            self.relay.on_child_lost,
            malice,
            DELAY_RECEIPT_WAITS * self.settings.receipt_wait_s,
        )

    def on_deliver(self, session: Session, frame: bytes) -> None:
        digest, data, wait_s, _ = read_deliver(frame)
        if digest:
            self._malice.patience_s = wait_s
        super().on_deliver(session, frame)
        if digest and self._malice.deed == CLAIM and session.open:
            proof = self._malice.rng.randbytes(PROOF_BYTES)
            session.send(Receipt(burst_id(data), int(Level.APPLIED), proof, digest))
