"""Who a node is and where it can be reached: the record that travels in hellos, views, gossip."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from swell.ids import MOVES_PER_START
from swell.wire.codec import Message
from swell.world import Address

Number = Annotated[int, Meta(ge=0, lt=1 << 32)]
"""Ids and epochs travel as 32 bits in the headers of routed frames."""

Port = Annotated[int, Meta(ge=0, lt=1 << 16)]
Text = Annotated[str, Meta(max_length=255)]


class Contact(Message, frozen=True):
    """One node in one life: `epoch` grows with every start of its process and every move."""

    id: Number
    name: Text
    site: Text
    rack: Text
    zone: Number
    host: Text
    port: Port
    epoch: Number

    @property
    def start(self) -> int:
        """Which start of its process this is."""
        return self.epoch // MOVES_PER_START

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)
