"""Who a node is and where it can be reached: the record that travels in hellos, views, gossip."""

from __future__ import annotations

from swell.wire.codec import Message
from swell.world import Address


class Contact(Message, frozen=True):
    """One node in one life: `epoch` grows with every start of its process."""

    id: int
    name: str
    site: str
    rack: str
    zone: int
    host: str
    port: int
    epoch: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)
