"""Where the copies of a slot live, as a pure function of the zones and their members.

SpiderCast 2.2: the upper ring of zone slices names the zone, the zone's ring the primary, and the
next member on it the first backup. The lateral replica lies in the next slice of another zone,
with the member that would own the primary's virtual id there: it survives the loss of the zone.
A zone with too few members is helped out by the zones of the following slices; where there is
only one zone, successors take the place of lateral replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from swell.rings import Tier, TwoLevelRing, virtual_id


def slot_key(slot: int) -> bytes:
    """What stands for a slot on the rings. Not its bare number: that is a node's name there."""
    return b"slot:%d" % slot


def place(
    key: bytes, zones: Mapping[int, Sequence[int]], replicas: int, ring: TwoLevelRing
) -> tuple[int, ...]:
    """The nodes that keep `key`, the primary first: successor and lateral replica in turn, all
    distinct; fewer than `replicas` only if there are no more nodes. `ring` is the one of `zones`,
    none of which is empty."""
    if not zones:
        return ()
    home, *others = ring.zones_from(key, replicas)
    own = ring.zone_ring(zones[home]).successors(key, replicas)
    successors = iter(own[1:])
    lateral = _laterals(own[0], [zones[zone] for zone in others], replicas, ring)
    placed = own[:1]
    while len(placed) < replicas:
        turns = (successors, lateral) if len(placed) % 2 else (lateral, successors)
        node = next((node for source in turns for node in source), None)
        if node is None:
            break
        placed.append(node)
    return tuple(placed)


def _laterals(
    primary: int, zones: Sequence[Sequence[int]], count: int, ring: TwoLevelRing
) -> Iterator[int]:
    """Members of the other zones, one of each in turn, those next to the primary's virtual id
    first."""
    position = virtual_id(primary, Tier.ZONE)
    walks = [ring.zone_ring(members).successors_at(position, count) for members in zones]
    for rank in range(count):
        for walk in walks:
            if rank < len(walk):
                yield walk[rank]
