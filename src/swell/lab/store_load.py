"""Load on a store, from the side of whoever orders it: one load process per system."""

from __future__ import annotations

import multiprocessing
from types import TracebackType

from swell.errors import SwellError
from swell.lab.store_worker import ClientSpec, Fill, Filled, Outcome, Trial, main

ANSWER_S_MAX = 120.0
"""Beyond the time that was ordered."""


class LoadProcess:
    """The process with the clients, as a context."""

    def __init__(self, spec: ClientSpec) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=main, args=(far, spec), daemon=True)
        self._process.start()
        far.close()

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def measure(self, trial: Trial) -> Outcome:
        self.begin(trial)
        return self.end(trial.warm_up_s + trial.seconds)

    def begin(self, request: Trial | Fill) -> None:
        self._pipe.send(request)

    def end(self, seconds: float) -> Outcome:
        outcome = self._receive(seconds)
        assert isinstance(outcome, Outcome)
        return outcome

    def fill(self, request: Fill, seconds_max: float) -> Filled:
        self.begin(request)
        filled = self._receive(seconds_max)
        assert isinstance(filled, Filled)
        return filled

    def _receive(self, seconds: float) -> object:
        try:
            if not self._pipe.poll(seconds + ANSWER_S_MAX):
                raise SwellError("the load process does not answer")
            answer: object = self._pipe.recv()
        except (EOFError, OSError):
            raise SwellError("the load process ended early; its log is on stderr") from None
        if isinstance(answer, str):
            raise SwellError(answer)
        return answer
