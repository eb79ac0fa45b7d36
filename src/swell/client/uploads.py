"""Publishing values of any length (RIP-17, RIP-18).

What fits into a command is sent in it. Of a longer value the present version is fetched, as far as
its chunks are not in the new one, and the delta is sent, with its base. Somebody may publish
meanwhile: then it is made again, a few times. Where no delta is short, or that was in vain, the
value is staged in pieces under an id of its own, and the step names it.

The delta is made in a thread. It is Python and holds the interpreter lock, a few milliseconds at
a time: the loop goes on, at about half its speed.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from swell.client.deadlines import Deadline
from swell.client.reading import Wanted, read_content
from swell.client.staging import Asker, Progress, Staging
from swell.config import requests
from swell.config import splices as deltas
from swell.config.application import conflict
from swell.config.configuration import Present
from swell.config.content import Content
from swell.config.diffing import delta
from swell.config.edits import WHOLE_BYTES_MAX, Edit, Splices, Uploaded, Whole
from swell.config.operations import Got, Published
from swell.config.uploads import UPLOADS_MAX
from swell.config.versions import NO_VERSION
from swell.errors import RefusedError, StaleVersionError, TooLargeError
from swell.store.request import Request

ATTEMPTS_MAX = 4
"""Deltas made for one step before its values are staged instead."""

INLINE_BYTES_MAX = 2 * 1024 * 1024
"""Of values and deltas in one command; what is beyond is staged."""

LENGTHS_ALIKE = 4
"""A value that is so many times as long as the other is not fetched for a delta."""

UPLOAD_ID_BYTES = 16
HELD_BYTES_MAX = 64 * 1024 * 1024
"""Of long values that were published or fetched and are likely to be edited again."""


class Held:
    """Long values by the ids of their versions, the last used at the end."""

    def __init__(self) -> None:
        self._contents: OrderedDict[bytes, Content] = OrderedDict()
        self._bytes = 0

    def get(self, id: bytes) -> Content | None:
        content = self._contents.get(id)
        if content is not None:
            self._contents.move_to_end(id)
        return content

    def put(self, id: bytes, content: Content) -> None:
        if id in self._contents or not WHOLE_BYTES_MAX < len(content) <= HELD_BYTES_MAX:
            return
        self._contents[id] = content
        self._bytes += len(content)
        while self._bytes > HELD_BYTES_MAX:
            self._bytes -= len(self._contents.popitem(last=False)[1])


class _Prepared(NamedTuple):
    """An edit as it is sent, and the content that it will make if that is worth holding."""

    edit: Edit
    content: Content | None = None


class Uploading:
    """Publishes for one application."""

    def __init__(self, asker: Asker, held: Held) -> None:
        self._asker = asker
        self._held = held

    async def publish(
        self, edits: Sequence[Edit], author: str, deadline: Deadline, progress: Progress | None
    ) -> Published:
        """One step; `StaleVersionError` only for conditions of the caller."""
        application = self._asker.application
        long = _long(edits)
        prepared = [_Prepared(edit) for edit in edits]
        for attempt in range(ATTEMPTS_MAX + 1):
            by_delta = attempt < ATTEMPTS_MAX
            budget = INLINE_BYTES_MAX - _weight(edits, long)
            for place, edit in long.items():
                if isinstance(prepared[place].edit, Uploaded):
                    continue  # It is there, whatever was published meanwhile.
                ready = await self._by_delta(edit, budget, deadline) if by_delta else None
                if ready is None:
                    ready = await self._by_upload(edit, deadline, progress)
                budget -= _weight([ready.edit], {})
                prepared[place] = ready
            request = requests.publish(application, [one.edit for one in prepared], author)
            try:
                published = requests.published_of(await self._asker.ask(request, deadline))
            except StaleVersionError as error:
                conditions = {edit.name: edit.condition for edit in edits}
                if not by_delta or not long or conditions.get(error.name) is not None:
                    raise
                continue  # Somebody was faster; nobody had asked for a certain version.
            break
        made = requests.made_of(edits, published)
        for one in prepared:
            if one.content is not None:
                self._held.put(made[one.edit.name].id, one.content)
        return published

    # By delta.

    async def _by_delta(self, edit: Whole, budget: int, deadline: Deadline) -> _Prepared | None:
        """The delta from the present version; None if there is none that is short, or if that
        version may not be read or is not kept any more."""
        application, name = self._asker.application, edit.name
        try:
            request = requests.get(application, name)
            got = requests.got_of(await self._asker.ask(request, deadline))
            _check(edit, got, application)
            if got is None or got.deleted or not _alike(got.length, len(edit.data)):
                return None
            base = await self._base(edit, got, deadline)
        except RefusedError:
            return None
        made = await asyncio.to_thread(_delta, base, edit.data)
        if made is None or len(made[0]) > budget:
            return None
        encoded, content = made
        return _Prepared(Splices(name, encoded, got.id, edit.condition), content)

    async def _base(self, edit: Whole, got: Got, deadline: Deadline) -> Content:
        """The present version: at hand, or fetched but for the chunks that the new one has too."""
        held = self._held.get(got.id)
        if held is not None:
            return held
        if got.data is not None:
            return Content.of(got.data)

        async def ask(request: Request) -> bytes:
            return await self._asker.ask(request, deadline)

        application = self._asker.application
        wanted = Wanted(application, edit.name, got.version, got.length, got.digest)
        return await read_content(ask, wanted, await asyncio.to_thread(Content.of, edit.data))

    # By upload.

    async def _by_upload(
        self, edit: Whole, deadline: Deadline, progress: Progress | None
    ) -> _Prepared:
        upload = os.urandom(UPLOAD_ID_BYTES)
        content = await asyncio.to_thread(_digested, edit.data)
        staging = Staging(self._asker, upload, edit.data, deadline, progress)
        await staging.run()
        uploaded = Uploaded(edit.name, upload, len(edit.data), content.digest, edit.condition)
        return _Prepared(uploaded, content)


def _long(edits: Sequence[Edit]) -> dict[int, Whole]:
    """Places of the values that do not travel in the command: those that are too long, and the
    longest of the others if they are too many."""
    wholes = {place: edit for place, edit in enumerate(edits) if isinstance(edit, Whole)}
    total = sum(len(edit.data) for edit in wholes.values())
    long = {}
    for place in sorted(wholes, key=lambda place: -len(wholes[place].data)):
        edit = wholes[place]
        if len(edit.data) <= WHOLE_BYTES_MAX and total <= INLINE_BYTES_MAX:
            break
        total -= len(edit.data)
        long[place] = edit
    if len(long) > UPLOADS_MAX:
        raise TooLargeError(
            f"a step has {len(long)} values that are too long to be sent with it, allowed are"
            f" {UPLOADS_MAX}: publish some before"
        )
    return {place: long[place] for place in sorted(long)}


def _weight(edits: Sequence[Edit], but: dict[int, Whole]) -> int:
    total = 0
    for place, edit in enumerate(edits):
        if isinstance(edit, Whole) and place not in but:
            total += len(edit.data)
        elif isinstance(edit, Splices):
            total += len(edit.delta)
    return total


def _check(edit: Whole, got: Got | None, application: str) -> None:
    """Tell now what the cluster would tell after everything was sent."""
    present = Present(0, NO_VERSION, None)
    if got is not None:
        present = Present(got.version, got.id, None if got.deleted else Content.of(b""))
    if not present.allows(edit.condition):
        found = requests.conflict_of(str(conflict(application, edit.name, present)), application)
        assert found is not None
        raise StaleVersionError(*found)


def _alike(old_length: int, new_length: int) -> bool:
    """Else the one can hardly be made from the other by a short delta."""
    return max(old_length, new_length) <= LENGTHS_ALIKE * min(old_length, new_length)


def _delta(base: Content, data: bytes) -> tuple[bytes, Content] | None:
    """The delta, encoded, and the content that it makes."""
    splices = delta(base.bytes(), data)
    return None if splices is None else (deltas.encode(splices), base.splice(splices))


def _digested(data: bytes) -> Content:
    content = Content.of(data)
    assert content.digest  # Computed here, off the loop.
    return content
