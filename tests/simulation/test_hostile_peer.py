"""A peer with a valid certificate that talks nonsense harms nobody (bad input, inside a cluster).

It says a proper hello for every kind of link and then sends well-formed messages with random
contents, raw routed frames, and garbage. Whatever it says is refused or counted; no exception
leaves protocol code, and once it is gone the overlay is in order.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import msgspec
import pytest

from swell.ids import MessageId
from swell.overlay.contact import Contact
from swell.overlay.matchers import node_target
from swell.overlay.messages import DETOUR, ROUTED, Hello, LinkKind, Welcome
from swell.overlay.routed import Detour, encode_detour, encode_routed
from swell.settings import OverlaySettings, Settings, StoreSettings
from swell.simulation.checkers.topology import problems
from swell.simulation.fleet import CLUSTER, Fleet
from swell.simulation.simulation import Simulation
from swell.wire import codec
from swell.world import Address, Link, Plane, World

NUMBERS = (0, 1, 2, 3, 5, 8, 1024, 2**16 - 1, 2**31, 2**32 - 1)
FRAMES_PER_LINK = 40


def _value(kind: msgspec.inspect.Type, rng: Random, depth: int = 0) -> Any:
    match kind:
        case msgspec.inspect.IntType():
            return rng.choice(NUMBERS)
        case msgspec.inspect.FloatType():
            return rng.choice((0.0, -1.0, 1e300, float("nan"), float("inf"), rng.random()))
        case msgspec.inspect.BoolType():
            return rng.random() < 0.5
        case msgspec.inspect.StrType():
            return rng.choice(("", "links", "gaps", "view", "topics", "s0", "n1", "x" * 200))
        case msgspec.inspect.BytesType():
            return rng.choice((b"", rng.randbytes(9), b"\x91\xc4\x01a", rng.randbytes(300)))
        case msgspec.inspect.NoneType():
            return None
        case msgspec.inspect.UnionType():
            return _value(rng.choice(kind.types), rng, depth)
        case msgspec.inspect.TupleType():
            return tuple(_value(item, rng, depth + 1) for item in kind.item_types)
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            count = rng.choice((0, 1, 3)) if depth < 3 else 0
            return [_value(kind.item_type, rng, depth + 1) for _ in range(count)]
        case msgspec.inspect.StructType():
            return [_value(field.type, rng, depth + 1) for field in kind.fields]
        case msgspec.inspect.LiteralType():
            return rng.choice(kind.values)
        case msgspec.inspect.EnumType():
            return rng.choice(list(kind.cls)).value
        case _:
            raise AssertionError(f"no random value for {kind}")


def _frame(rng: Random, expected: list[int]) -> bytes:
    """A random frame: mostly of a type that the victim expects and of the right form."""
    number = rng.choice(expected) if rng.random() < 0.97 else rng.randrange(256)
    if number in (ROUTED, DETOUR):
        return _routed(number, rng)
    if number not in expected or rng.random() < 0.03:
        return codec.frame(number, rng.randbytes(rng.choice((0, 3, 26, 60))))
    cls = codec._types[number]
    assert cls is not None
    body = _value(msgspec.inspect.type_info(cls), rng)
    return codec.frame(number, msgspec.msgpack.encode(body))


def _routed(number: int, rng: Random) -> bytes:
    """A multicast or a detour with a header of random numbers."""
    message = MessageId(rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(NUMBERS))
    inner = encode_routed(
        message,
        source_zone=rng.choice(NUMBERS),
        matcher=rng.randrange(8),
        port=rng.choice((1, 2, 3, 8, 9, 16, 20)),
        target=rng.choice((b"", rng.randbytes(8), node_target(1, 1), node_target(2, 0))),
        payload=rng.choice((b"", rng.randbytes(12), rng.randbytes(40))),
        traced=rng.random() < 0.3,
    )
    if number == ROUTED:
        return inner
    zones = [rng.choice(NUMBERS) for _ in range(3)]
    return encode_detour(Detour(*zones, rng.random() < 0.3, tuple(zones[:1]), inner))


class Hostile:
    """Dials the nodes one after the other, as one kind of peer after the other."""

    def __init__(
        self, world: World, victims: list[Contact], expected: dict[int, list[int]]
    ) -> None:
        self._world = world
        self._expected = expected
        self._victims = victims
        self.welcomes = 0
        self.sent = 0
        self._dial()

    def _dial(self) -> None:
        victim = self._world.rng.choice(self._victims)
        self._link = self._world.dial(victim.address)
        self._victim = victim
        self._world.call_later(0.3, self._hang_up)

    def _hang_up(self) -> None:
        self._link.close()
        self._dial()

    def on_link_up(self, link: Link) -> None:
        rng, victim = self._world.rng, self._victim
        kind = self._kind = rng.choice(list(LinkKind))
        zone = victim.zone if kind == LinkKind.CLIQUE else rng.choice((1, 2, 3))
        me = Contact(99, "hostile", "s0", "r", zone, "hostile", 0, rng.choice(NUMBERS))
        link.send(codec.encode(Hello(CLUSTER, kind, me)), Plane.CONTROL)

    def on_frame(self, link: Link, frame: bytes) -> None:
        try:
            message = codec.decode(frame)
        except Exception:
            return
        if isinstance(message, Welcome):
            self.welcomes += 1
            for _ in range(FRAMES_PER_LINK):
                frame = _frame(self._world.rng, self._expected[self._kind])
                self.sent += link.send(frame, Plane.CONTROL)

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None: ...

    def stop(self) -> None: ...


@pytest.mark.parametrize("seed", range(int(os.environ.get("SWELL_HOSTILE", "6"))))
def test_nonsense_from_an_admitted_peer_is_refused_or_counted(seed: int) -> None:
    simulation = Simulation(seed)
    fleet = Fleet(
        simulation, Settings(overlay=OverlaySettings(connections=4), store=StoreSettings(slots=0))
    )
    for k in range(12):
        fleet.add(f"n{k}", f"s{k % 3}")
    assert simulation.run_until_true(lambda: not problems(fleet), 60.0, 1.0)
    victims = [overlay.me for overlay in fleet.living()]
    voter = fleet.node(fleet.voter)
    assert voter is not None
    expected = {
        kind: [number for number, handler in enumerate(table) if handler is not None]
        for kind, table in voter.sessions._tables.items()
    }
    hostile: list[Hostile] = []

    def factory(world: World) -> Hostile:
        hostile.append(Hostile(world, victims, expected))
        return hostile[0]

    process = simulation.add("hostile", "s0", factory)
    process.start()
    simulation.run_for(60.0)
    process.crash()
    assert hostile[0].welcomes > 50
    assert hostile[0].sent > 500
    assert all(process.alive for process in fleet.processes.values())
    settled = simulation.run_until_true(lambda: not problems(fleet), 300.0, 2.0)
    assert settled, problems(fleet)[:5]
    assert Address("hostile", 0) not in [o.me.address for o in fleet.living()]
