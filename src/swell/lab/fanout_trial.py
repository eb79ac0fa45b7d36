"""One measurement of pushing to many subscribers: what is asked for, what came out, and of whom.

A system takes part by being a `System`: it can be started, and while it runs it carries out trials.
Deliveries are written down as *runs*: at some instant a subscriber went from having all updates up
to one sequence number to having all up to another. What a trial measured is computed from the runs
afterwards, so that nothing but an append happens while it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

SUBSCRIBERS = 500
WINDOW = 32
LATENCIES_MAX = 1_000_000
"""Beyond so many, evenly spread ones of them are looked at."""

Numbers = npt.NDArray[np.int64]


class Trial(NamedTuple):
    """What to measure: a closed loop, with `window` updates under way. One has ended when every
    subscriber has it."""

    patch: bool
    """Send only a patch of the change, by hand; otherwise the whole value."""
    warm_up_s: float
    seconds: float
    subscribers: int = SUBSCRIBERS
    window: int = WINDOW


class Outcome(NamedTuple):
    """What a trial measured. Times and processor time are those of `seconds`, after the warm-up;
    bytes are those of the whole trial, from the first update to the end of the last."""

    seconds: float
    deliveries: int
    p50_ms: float
    p99_ms: float
    servers_cpu_s: float
    clients_cpu_s: float
    """Of the processes that host the subscribers and the publisher."""
    others_cpu_s: float
    """Of everything else on the machine."""
    server_bytes: int | None
    """Sent by all servers, to subscribers and to each other; None: it could not be read."""
    bytes_deliveries: int
    """Those that the bytes were for."""
    skipped: int
    """Versions that a subscriber never got, because a newer one took their place."""
    missing: int
    """Deliveries that were still due when the trial gave up waiting."""
    load_processes: int = 1


class Running(Protocol):
    """A system, up."""

    version: str

    def trial(self, trial: Trial) -> Outcome: ...


class System(Protocol):
    """Anything that pushes updates to subscribers."""

    name: str
    by_hand: bool
    """Whether a patch has to be made and applied by hand: such a system is measured both ways."""

    def absence(self) -> str:
        """Why it cannot be measured on this machine, as a sentence; empty if it can."""

    def running(self, directory: Path) -> AbstractContextManager[Running]:
        """Start its servers, with their data in an empty directory of their own."""


class Counted(NamedTuple):
    """Of the part of a trial that is measured."""

    deliveries: int
    p50_ms: float
    p99_ms: float


def runs_of(logs: Sequence[bytes]) -> Numbers:
    """Rows of (before, after, instant in ns), from what the load processes wrote down."""
    return np.frombuffer(b"".join(logs), dtype=np.int64).reshape(-1, 3)


def deliveries_of(runs: Numbers) -> int:
    return int((runs[:, 1] - runs[:, 0]).sum())


def published_by_sequence(
    published_ns: Sequence[int], versions: Mapping[int, int] | None
) -> Numbers:
    """When each update was published, by sequence number; `published_ns[0]` is version 1's."""
    times = np.array([0, *published_ns], dtype=np.int64)
    if versions is None:
        return times
    ordered = np.zeros(max(versions, default=0) + 1, dtype=np.int64)
    ordered[list(versions)] = times[list(versions.values())]
    return ordered


def count(runs: Numbers, published_ns: Numbers, from_ns: int, until_ns: int) -> Counted:
    """Deliveries within the measured time, and from publishing to having it, of each of them."""
    instants = runs[:, 2]
    measured = runs[(from_ns <= instants) & (instants < until_ns)]
    deliveries = deliveries_of(measured)
    if not deliveries:
        return Counted(0, float("nan"), float("nan"))
    looked_at = measured[:: deliveries // LATENCIES_MAX + 1]
    p50, p99 = np.percentile(latencies_of(looked_at, published_ns), (50, 99)) / 1e6
    return Counted(deliveries, float(p50), float(p99))


def latencies_of(runs: Numbers, published_ns: Numbers) -> Numbers:
    """From publishing to having it in ns, of every delivery."""
    lengths = runs[:, 1] - runs[:, 0]
    ends = np.cumsum(lengths)
    # 1, 2, … length of each run, on top of its beginning: the sequence numbers it delivered.
    within = np.arange(1, lengths.sum() + 1) - np.repeat(ends - lengths, lengths)
    sequences = np.repeat(runs[:, 0], lengths) + within
    latencies_ns: Numbers = np.repeat(runs[:, 2], lengths) - published_ns[sequences]
    return latencies_ns
