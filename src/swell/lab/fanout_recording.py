"""What it costs to write API events down while one value is pushed to many subscribers.

Two clusters of ours work at the same time, one of which writes events: whatever the machine's
neighbours do, they do it to both. (Trials in turns differed by a fifth from each other, with or
without events.) Together they use all processors there are, so the rate that each could have alone
follows from its processor time per delivery, and that is what is compared: of all its processes and
threads, those included that make rows and files. The figure is the median over several trials.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from swell.lab.experiment import Bar
from swell.lab.fanout_swell import Swell
from swell.lab.fanout_trial import Outcome, Running, Trial

PLAIN, RECORDED = "swell", "swell with events"
RATIO_MIN = 0.95

Pair = tuple[Outcome, Outcome]
"""Without and with."""


def measure(events: str, trial: Trial, pairs: int, advance: Callable[[], None]) -> list[Pair]:
    with ExitStack() as stack:

        def up(system: Swell) -> Running:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="swell-fanout-"))
            return stack.enter_context(system.running(Path(directory)))

        plain, recorded = up(Swell()), up(Swell(RECORDED, events))
        pool = stack.enter_context(ThreadPoolExecutor(2))

        def both() -> Pair:
            without, with_events = (pool.submit(one.trial, trial) for one in (plain, recorded))
            return without.result(), with_events.result()

        both()  # the first ones to start do not start together
        found: list[Pair] = []
        for _ in range(pairs):
            found.append(both())
            advance()
        return found


def ratios(pairs: Sequence[Pair]) -> list[float]:
    """Deliveries for the same processor time, with events against without, of each trial."""
    return [_per_cpu_s(recorded) / _per_cpu_s(plain) for plain, recorded in pairs]


def _per_cpu_s(outcome: Outcome) -> float:
    return outcome.deliveries / (outcome.servers_cpu_s + outcome.clients_cpu_s)


def bar(pairs: Sequence[Pair]) -> Bar:
    what = "deliveries per processor second with events written, against without"
    return Bar.at_least(what, RATIO_MIN, round(statistics.median(ratios(pairs)), 3))
