"""A node asked directly: for its table of slots, and for something that burdens its loop.

The burden is the node's status: it looks at all of its slots and counters and asks nobody else, so
that all of the cost is its own loop's, about fifteen times what it costs us to send the request and
to count the answer. Frames are not decoded unless somebody wants to read one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any

from swell.errors import UnavailableError
from swell.operations.messages import Request, Response
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind
from swell.overlay.sessions import Session, Sessions
from swell.runtime.security import TlsMaterial
from swell.runtime.world import RuntimeWorld
from swell.store.messages import Table, TableRequest
from swell.wire import codec
from swell.world import Address, Link

BURDEN_S_MAX = 5.0


class TableReader:
    """The protocol object of one link to one node; answers come in the order of requests."""

    def __init__(self, address: Address, cluster: str, tls: TlsMaterial | None = None) -> None:
        name = tls.node if tls is not None else "table-reader"
        self._world = RuntimeWorld(name, None, tls, cluster=cluster)
        self._address = address
        self._sessions = Sessions(self._world, self._world.cluster, _me, lambda: 0, Counter())
        for answer in (Table, Response):
            self._sessions.handle_frames(codec_number(answer), self._on_answer, (LinkKind.CLIENT,))
        self._open: deque[asyncio.Future[bytes]] = deque()
        self._session: Session | None = None
        self._ready: asyncio.Future[None] = self._world.loop.create_future()

    async def open(self) -> None:
        self._world.start(self)
        self._session = self._sessions.open(self._address, "", LinkKind.CLIENT, self)
        await self._ready

    async def close(self) -> None:
        await self._world.stop()

    def ask(self) -> asyncio.Future[bytes]:
        """The frame of a table."""
        return self._send(TableRequest(1))

    def burden(self) -> asyncio.Future[bytes]:
        """The frame of some answer, after the node has worked for it."""
        return self._send(Request(1, "status", b"{}", BURDEN_S_MAX))

    def _send(self, request: Any) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._world.loop.create_future()
        assert self._session is not None, "opened before it is asked"
        if self._session.open and self._session.send(request):
            self._open.append(answer)
        else:
            answer.set_exception(UnavailableError(f"{self._address} takes no requests now"))
        return answer

    def _on_answer(self, session: Session, frame: bytes) -> None:
        answer = self._open.popleft()
        if not answer.done():
            answer.set_result(frame)

    # The session's and the world's side.

    def on_open(self, session: Session) -> None:
        self._ready.set_result(None)

    def on_closed(self, session: Session, reason: str) -> None:
        lost = UnavailableError(f"the link to {self._address} has ended: {reason}")
        if not self._ready.done():
            self._ready.set_exception(lost)
        for answer in self._open:
            if not answer.done():
                answer.set_exception(lost)
        self._open.clear()

    def on_link_up(self, link: Link) -> None:
        self._sessions.on_link_up(link)

    def on_link_down(self, link: Link, reason: str) -> None:
        self._sessions.on_link_down(link, reason)

    def on_writable(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self._sessions.on_frame(link, frame)

    def stop(self) -> None:
        self._sessions.close_all("stopped")


async def slots_served(
    address: Address, cluster: str, tls: TlsMaterial | None = None
) -> Counter[Address]:
    """How many slots every node serves, as the node at `address` knows it."""
    reader = TableReader(address, cluster, tls)
    try:
        await reader.open()
        table: Table = codec.decode(await reader.ask())
    finally:
        await reader.close()
    addresses = {contact.id: contact.address for contact in table.contacts}
    return Counter(addresses[node] for node in table.primaries if node in addresses)


def codec_number(cls: type) -> int:
    """The type's number on the wire."""
    number: int = cls.wire_type  # type: ignore[attr-defined]
    return number


def _me() -> Contact:
    return Contact(0, "table-reader", "", "", 0, "", 0, 0)
