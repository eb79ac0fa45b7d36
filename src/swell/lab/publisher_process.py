"""A process that publishes, from the side of whoever orders it.

It says that it is ready, publishes from GO on, and after STOP tells what happened once that has
come to its end. Whatever else it says is a complaint.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from swell.errors import SwellError

GO, STOP = "go", "stop"
ANSWER_S_MAX = 60.0

Ready = TypeVar("Ready")
Published = TypeVar("Published")


class PublisherProcess(Generic[Ready, Published]):
    """`main(order, pipe)` is what it runs; it sends a `Ready`, later a `Published`."""

    def __init__(
        self,
        main: Callable[[Any, Connection], None],
        order: object,
        ready: type[Ready],
        published: type[Published],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._published = published
        self._pipe: Connection
        self._pipe, far = context.Pipe()
        self._process: BaseProcess = context.Process(target=main, args=(order, far), daemon=True)
        self._process.start()
        far.close()
        try:
            self.ready = self._hear(ready, ANSWER_S_MAX)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def go(self) -> None:
        self._pipe.send(GO)

    def wait(self, seconds: float) -> None:
        """Unless it has something to say."""
        if self._pipe.poll(seconds):
            self._hear(type(None), 0.0)

    def stop(self, within_s: float) -> Published:
        self._pipe.send(STOP)
        published: Published = self._hear(self._published, within_s + ANSWER_S_MAX)
        return published

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _hear(self, kind: type[Any], seconds: float) -> Any:
        try:
            if not self._pipe.poll(seconds):
                raise SwellError("the publisher does not answer")
            answer: object = self._pipe.recv()
        except (EOFError, OSError):
            raise SwellError("the publisher ended early; its log is on stderr") from None
        if not isinstance(answer, kind):
            raise SwellError(f"the publisher complains: {answer}")
        return answer
