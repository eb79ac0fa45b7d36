"""The operations of `swell.client.configs.Configs` for programs without a loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from swell.client.configs import NAMES_SHOWN, WAIT_S, Configs
from swell.client.edits import Edit
from swell.client.staging import Progress
from swell.client.values import Condition, Data, Publication, Value, VersionFacts
from swell.client.waiting import Report, Status
from swell.config.operations import Kept, Options, Row

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine on the client's loop and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncValue(VersionFacts):
    """A version whose bytes are read when they are first asked for."""

    __slots__ = ("_run", "_value")

    def __init__(self, value: Value, run: Run) -> None:
        super().__init__(value.name, value.got, value.stale)
        self._value = value
        self._run = run

    def bytes(self) -> Data:
        return self._run(self._value.bytes())

    def text(self) -> str:
        return self.bytes().decode()

    def json(self) -> Any:
        return json.loads(self.bytes())


class SyncConfigs:
    """Each waits for its result. Callbacks are called on another thread."""

    def __init__(self, configs: Configs, run: Run) -> None:
        self._configs = configs
        self._run = run

    def put(
        self,
        name: str,
        data: bytes | str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
        progress: Progress | None = None,
    ) -> Publication:
        return self._run(
            self._configs.put(
                name,
                data,
                condition=condition,
                author=author,
                deadline_s=deadline_s,
                progress=progress,
            )
        )

    def set(
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
        return self._run(
            self._configs.set(
                name,
                path,
                text,
                as_text=as_text,
                condition=condition,
                author=author,
                deadline_s=deadline_s,
            )
        )

    def unset(
        self,
        name: str,
        path: str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        work = self._configs.unset(
            name, path, condition=condition, author=author, deadline_s=deadline_s
        )
        return self._run(work)

    def delete(
        self,
        name: str,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        work = self._configs.delete(name, condition=condition, author=author, deadline_s=deadline_s)
        return self._run(work)

    def rollback(
        self,
        name: str,
        version: int,
        *,
        condition: Condition = None,
        author: str = "",
        deadline_s: float | None = None,
    ) -> Publication:
        work = self._configs.rollback(
            name, version, condition=condition, author=author, deadline_s=deadline_s
        )
        return self._run(work)

    def publish(
        self,
        changes: Sequence[Edit],
        *,
        author: str = "",
        deadline_s: float | None = None,
        progress: Progress | None = None,
    ) -> tuple[Publication, ...]:
        work = self._configs.publish(
            changes, author=author, deadline_s=deadline_s, progress=progress
        )
        return self._run(work)

    def options(
        self,
        *,
        relaying: bool | None = None,
        versions_kept: int | None = None,
        deadline_s: float | None = None,
    ) -> Options:
        work = self._configs.options(
            relaying=relaying, versions_kept=versions_kept, deadline_s=deadline_s
        )
        return self._run(work)

    def get(
        self, name: str, version: int = 0, *, stale: bool = False, deadline_s: float | None = None
    ) -> SyncValue | None:
        work = self._configs.get(name, version, stale=stale, deadline_s=deadline_s)
        value = self._run(work)
        return None if value is None else SyncValue(value, self._run)

    def list(self, prefix: str = "", *, deadline_s: float | None = None) -> tuple[Row, ...]:
        return self._run(self._configs.list(prefix, deadline_s=deadline_s))

    def history(self, name: str, *, deadline_s: float | None = None) -> tuple[Kept, ...]:
        return self._run(self._configs.history(name, deadline_s=deadline_s))

    def diff(self, name: str, old: int, new: int = 0, *, context: int = 3) -> Iterator[str]:
        pages = self._configs.diff_pages(name, old, new, context)
        while page := self._run(_next(pages)):
            yield from page

    def wait(
        self,
        step: int,
        *,
        level: str = "applied",
        deadline_s: float = WAIT_S,
        progress: Callable[[Report], None] | None = None,
        names_max: int = NAMES_SHOWN,
    ) -> Report:
        work = self._configs.wait(
            step, level=level, deadline_s=deadline_s, progress=progress, names_max=names_max
        )
        return self._run(work)

    def status(self, name: str = "", *, deadline_s: float | None = None) -> Status:
        return self._run(self._configs.status(name, deadline_s=deadline_s))


async def _next(pages: AsyncIterator[Sequence[str]]) -> Sequence[str]:
    async for page in pages:
        return page
    return ()
