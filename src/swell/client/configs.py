"""The configurations of one application for administrators (Ripple 3.2; RIP-1 … 6, 15 … 19).

    configs = client.configs("shop")
    published = await configs.put("db.json", b'{"pool": {"size": 10}}')
    await configs.set("db.json", "pool.size", "20", condition=published.id)

Every change is one step of the application: all of it happens or nothing. A condition that does
not hold ends with `StaleVersionError`, which carries what is there instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice

from swell.client import edits
from swell.client.deadlines import Deadline
from swell.client.edits import Edit
from swell.client.reading import Wanted, read_content
from swell.client.session_pending import Answer
from swell.client.staging import Progress
from swell.client.uploads import Held, Uploading
from swell.client.values import Condition, Publication, Value
from swell.client.waiting import Report, Status, await_step, read_status
from swell.config import operations as ops
from swell.config import requests
from swell.config.messages import Level
from swell.config.names import check_application
from swell.config.operations import CONFIG_SERVICE
from swell.config.reports import Await
from swell.config.unified import unified
from swell.errors import ConfigurationError, RefusedError, StaleVersionError
from swell.store.request import Request

Call = Callable[[int, int, int, bytes, float | None], Awaitable[Answer]]

WAIT_S = 30.0
NAMES_SHOWN = 100
LINES_MAX = 1024
"""Lines of a difference that are made at a time."""


class Configs:
    """The operations on one application. All take `deadline_s`: of the whole operation; without it
    every request has the client's own."""

    def __init__(self, call: Call, application: str, held: Held) -> None:
        self._call = call
        self.application = check_application(application, reserved=True)
        self._uploading = Uploading(self, held)

    # Changes.

    async def put(
        self,
        name: str,
        data: bytes | str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
        progress: Progress | None = None,
    ) -> Publication:
        """The value is this from now on; a long one travels as a delta if that is short, else in
        pieces: `progress(bytes, of)` hears of them."""
        edit = edits.put(name, data, condition)
        return await self._one(edit, author, deadline_s, progress)

    async def set(
        self,
        name: str,
        path: str,
        text: str,
        *,
        as_text: bool = False,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        """Set one key of a JSON, YAML, TOML or key=value document, which is created if there is
        none. `as_text`: the text is a string whatever it looks like."""
        edit = edits.set(name, path, text, as_text, condition)
        return await self._one(edit, author, deadline_s)

    async def unset(
        self,
        name: str,
        path: str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        """Remove one key of a document."""
        return await self._one(edits.unset(name, path, condition), author, deadline_s)

    async def delete(
        self,
        name: str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        """A deletion is a version; what does not exist stays as it is."""
        return await self._one(edits.delete(name, condition), author, deadline_s)

    async def rollback(
        self,
        name: str,
        version: int,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        """A new version that is what a kept one was."""
        return await self._one(edits.rollback(name, version, condition), author, deadline_s)

    async def publish(
        self,
        changes: Sequence[Edit],
        *,
        author: str = "",
        deadline_s: float | None = None,
        progress: Progress | None = None,
    ) -> tuple[Publication, ...]:
        """Several changes (`swell.edits`) as one step: of different configurations, or of several
        keys of one. What they made, in the order of the configurations."""
        deadline = Deadline(deadline_s)
        for edit in changes:
            if not isinstance(edit, Edit):
                raise ConfigurationError(f"{type(edit).__name__} is no edit: see swell.edits")
        result = await self._uploading.publish(changes, author, deadline, progress)
        return tuple(
            Publication(name, result.step, made.version, made.id, made.length, made.changed)
            for name, made in requests.made_of(changes, result).items()
        )

    async def _one(
        self,
        edit: Edit,
        author: str,
        deadline_s: float | None,
        progress: Progress | None = None,
    ) -> Publication:
        step = await self.publish((edit,), author=author, deadline_s=deadline_s, progress=progress)
        return step[0]

    async def options(
        self,
        *,
        relaying: bool | None = None,
        versions_kept: int | None = None,
        protect: float | None = None,
        deadline_s: float | None = None,
    ) -> ops.Options:
        """Change what is given; the options now. `protect` is about the application's instances
        (`swell.client.services`)."""
        request = requests.set_options(self.application, relaying, versions_kept, protect)
        return requests.options_of(await self.ask(request, Deadline(deadline_s)))

    # Reading.

    async def get(
        self,
        name: str,
        version: int = 0,
        *,
        stale: bool = False,
        deadline_s: float | None = None,
    ) -> Value | None:
        """A version, the newest if it is 0; None if there is no such configuration and never was.
        `RefusedError`: that version is not kept. `stale` allows an answer that may be behind."""
        deadline = Deadline(deadline_s)
        request = requests.get(self.application, name, version, stale=stale)
        answer = await self._send(CONFIG_SERVICE, request, deadline)
        got = requests.got_of(answer.body)
        return None if got is None else Value(name, got, answer.stale, self._read)

    async def _read(self, value: Value) -> bytes:
        wanted = Wanted(self.application, value.name, value.version, value.length, value.digest)
        content = await read_content(self._ask, wanted)
        return await asyncio.to_thread(content.bytes)

    async def list(
        self, prefix: str = "", *, deadline_s: float | None = None
    ) -> tuple[ops.Row, ...]:
        """The configurations that exist, in the order of their names."""
        deadline = Deadline(deadline_s)
        rows: list[ops.Row] = []
        while True:
            after = rows[-1].name if rows else ""
            request = requests.list_names(self.application, prefix, after)
            page = requests.names_of(await self.ask(request, deadline))
            rows += page
            if len(page) < ops.ROWS_MAX:
                return tuple(rows)

    async def history(self, name: str, *, deadline_s: float | None = None) -> tuple[ops.Kept, ...]:
        """The versions that are kept, the newest last."""
        request = requests.history(self.application, name)
        return requests.history_of(await self.ask(request, Deadline(deadline_s)))

    async def diff(
        self, name: str, old: int, new: int = 0, *, context: int = 3
    ) -> AsyncIterator[str]:
        """The lines of the difference of two kept versions in the manner of `diff -u`; none if
        they are equal. A deletion counts as empty. `new` 0: the newest."""
        async for lines in self.diff_pages(name, old, new, context):
            for line in lines:
                yield line

    async def diff_pages(
        self, name: str, old: int, new: int, context: int
    ) -> AsyncIterator[Sequence[str]]:
        """The same, many lines at a time; they are made off the loop."""
        before, after = await asyncio.gather(self._existing(name, old), self._existing(name, new))
        lines = unified(
            await _bytes_of(before),
            await _bytes_of(after),
            f"{name} version {before.version}",
            f"{name} version {after.version}",
            context,
        )
        while page := await asyncio.to_thread(lambda: [*islice(lines, LINES_MAX)]):
            yield page

    async def _existing(self, name: str, version: int) -> Value:
        value = await self.get(name, version)
        if value is None:
            sentence = f"application {self.application} has no configuration {name}"
            raise RefusedError("absent", sentence)
        return value

    # Delivery.

    async def wait(
        self,
        step: int,
        *,
        level: str = "applied",
        deadline_s: float = WAIT_S,
        progress: Callable[[Report], None] | None = None,
        names_max: int = NAMES_SHOWN,
    ) -> Report:
        """Wait until every interested container has `delivered` or `applied` this step or is known
        not to; or for the deadline, and then the report is not `complete`. `progress` hears of it
        about twice a second. Of every class at most `names_max` containers are named."""
        try:
            wanted = Level[level.upper()]
        except KeyError:
            raise ConfigurationError(f"the level {level!r} is not delivered or applied") from None
        question = Await(self.application, step, wanted, names_max)
        return await await_step(self._call, question, deadline_s, progress)

    async def status(self, name: str = "", *, deadline_s: float | None = None) -> Status:
        """Which container has which version; without a name, which step. `rows`: one each."""
        return await read_status(self._call, self.application, name, Deadline(deadline_s))

    # Requests.

    async def ask(self, request: Request, deadline: Deadline) -> bytes:
        """One request about configurations, for the parts of this one."""
        return (await self._send(CONFIG_SERVICE, request, deadline)).body

    async def _ask(self, request: Request) -> bytes:
        return await self.ask(request, Deadline(None))

    async def _send(self, service: int, request: Request, deadline: Deadline) -> Answer:
        place, read, body = request
        try:
            return await self._call(service, place, read, body, deadline.left_s())
        except RefusedError as error:
            conflict = requests.conflict_of(str(error), self.application)
            if conflict is None:
                raise
            raise StaleVersionError(*conflict) from None


async def _bytes_of(value: Value) -> bytes:
    return b"" if value.deleted else await value.bytes()
