"""Timers of the real world."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swell.runtime.world import RuntimeWorld


class RuntimeTimer:
    """A pending `call_later`. Never early by `World.now`: the loop counts whole milliseconds of a
    clock that stands still while the machine is suspended."""

    __slots__ = ("_action", "_due_s", "_handle", "_world")

    def __init__(self, world: RuntimeWorld, delay_s: float, action: Callable[[], None]) -> None:
        self._world = world
        self._action: Callable[[], None] | None = action
        self._due_s = 0.0
        self._handle: asyncio.Handle | None
        """None when it has run: the two would refer to each other for ever."""
        if delay_s <= 0.0:
            self._handle = world.loop.call_soon(self._expire_soon)
        else:
            self._due_s = world.now() + delay_s
            self._handle = self._arm(delay_s)

    def cancel(self) -> None:
        self._action = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, delay_s: float) -> asyncio.Handle:
        milliseconds = math.ceil(delay_s * 1000.0)
        if milliseconds <= 0:
            return self._world.loop.call_soon(self._expire)
        return self._world.loop.call_later(milliseconds / 1000.0, self._expire)

    def _expire_soon(self) -> None:
        action, self._action = self._action, None
        self._handle = None
        if action is not None:
            self._world.guard(action)

    def _expire(self) -> None:
        action = self._action
        if action is None:
            return
        remaining_s = self._due_s - self._world.now()
        if remaining_s > 0.0:
            self._handle = self._arm(remaining_s)
            return
        self._action = self._handle = None
        self._world.guard(action)
