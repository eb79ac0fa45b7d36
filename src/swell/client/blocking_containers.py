"""A container's configurations for programs without a loop.

Readers wait on their own threads; a callback has a thread of its own, so that it may take its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Thread

import structlog

from swell.client.blocking_configs import Run
from swell.client.containers import Containers
from swell.client.documents import Change, Update
from swell.client.watching import Watch
from swell.errors import RefusedError, UnavailableError

Soon = Callable[[Callable[[], None]], None]
"""Calls something on the client's loop, if it has not ended."""


class SyncUpdate(Change):
    """A change, for programs without a loop."""

    __slots__ = ("_run", "_update")

    def __init__(self, update: Update, run: Run) -> None:
        super().__init__(update.application, update.document)
        self._update = update
        self._run = run

    def applied(self) -> None:
        self._run(self._update.applied())

    def rejected(self, reason: str) -> None:
        self._run(self._update.rejected(reason))


Callback = Callable[[SyncUpdate], None]


class SyncContainers:
    """As `swell.client.containers.Containers`, from any thread."""

    def __init__(self, containers: Containers, run: Run, soon: Soon) -> None:
        self._containers = containers
        self._run = run
        self._soon = soon

    def watch(
        self, names: Sequence[str], application: str | None, manual: bool
    ) -> Iterator[SyncUpdate]:
        yield from self._read(self._open(names, application, manual))

    def _open(self, names: Sequence[str], application: str | None, manual: bool) -> Watch:
        async def begin() -> Watch:
            return self._containers.open(names, application, manual)

        return self._run(begin())

    def _read(self, watch: Watch) -> Iterator[SyncUpdate]:
        """Until the watch is ended, or the client closed."""
        try:
            while (update := self._run(watch.take())) is not None:
                yield SyncUpdate(update, self._run)
        except UnavailableError:
            return
        finally:
            self._soon(lambda: self._containers.leave(watch))

    def on_update(
        self, names: Sequence[str], callback: Callback, application: str | None
    ) -> Callable[[], None]:
        watch = self._open(names, application, manual=True)

        def live() -> None:
            try:
                for update in self._read(watch):
                    _call(callback, update)
            except RefusedError as error:
                structlog.get_logger().warning("watch ended", names=names, reason=str(error))

        Thread(target=live, name="swell-updates", daemon=True).start()
        return lambda: self._soon(watch.end)


def _call(callback: Callback, update: SyncUpdate) -> None:
    try:
        callback(update)
    except Exception as error:
        update.rejected(str(error) or type(error).__name__)
    else:
        update.applied()
