"""One operation of a service, as its client hands it to the store."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """Ready to be sent: `place` modulo the number of slots is its slot, `read` a
    `swell.store.messages.Read`."""

    place: int
    read: int
    body: bytes
