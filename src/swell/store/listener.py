"""Who wants to follow the slots that this node serves, such as the delivery of configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Listener(Protocol):
    """Who follows what this node serves."""

    def on_serving(self, slot: int) -> None:
        """This node has become the slot's primary."""
        ...

    def on_committed(self, slot: int) -> None:
        """Commands of a slot that this node serves were applied."""
        ...

    def on_stopped(self, slot: int) -> None:
        """This node is the slot's primary no more."""
        ...


class Nobody:
    """The listener of a store that nobody follows."""

    def on_serving(self, slot: int) -> None: ...

    def on_committed(self, slot: int) -> None: ...

    def on_stopped(self, slot: int) -> None: ...


class Several:
    """Several listeners, told in their order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    def on_serving(self, slot: int) -> None:
        for listener in self._listeners:
            listener.on_serving(slot)

    def on_committed(self, slot: int) -> None:
        for listener in self._listeners:
            listener.on_committed(slot)

    def on_stopped(self, slot: int) -> None:
        for listener in self._listeners:
            listener.on_stopped(slot)
