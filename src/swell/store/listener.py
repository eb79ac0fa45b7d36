"""Who wants to follow the slots that this node serves, such as the delivery of configurations."""

from __future__ import annotations

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
