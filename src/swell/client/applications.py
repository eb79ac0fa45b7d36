"""Which applications a cluster has: nobody keeps a list of all, so every slot is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from swell.client.deadlines import Deadline
from swell.client.session_pending import Answer
from swell.config import requests
from swell.config.operations import CONFIG_SERVICE, ROWS_MAX, ApplicationRow

SLOTS_OPEN_MAX = 32
"""Slots that are asked at a time."""

Call = Callable[[int, int, int, bytes, float | None], Awaitable[Answer]]


async def list_applications(
    call: Call, slots: int, deadline_s: float | None, services: bool = False
) -> tuple[ApplicationRow, ...]:
    """In the order of their names; all, or those that have instances."""
    deadline = Deadline(deadline_s)
    waiting = iter(range(slots))
    found: list[ApplicationRow] = []

    async def ask() -> None:
        for slot in waiting:
            found.extend(await _of_slot(call, slot, deadline, services))

    await asyncio.gather(*(ask() for _ in range(SLOTS_OPEN_MAX)))
    return tuple(sorted(found, key=lambda row: row.name))


async def _of_slot(
    call: Call, slot: int, deadline: Deadline, services: bool
) -> list[ApplicationRow]:
    rows: list[ApplicationRow] = []
    while True:
        after = rows[-1].name if rows else ""
        place, read, body = requests.list_applications(slot, after, services=services)
        answer = await call(CONFIG_SERVICE, place, read, body, deadline.left_s())
        page = requests.applications_of(answer.body)
        rows += page
        if len(page) < ROWS_MAX:
            return rows
